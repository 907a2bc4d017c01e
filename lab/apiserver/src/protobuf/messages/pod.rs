//! Pods of `core/v1`: the pod and its status.

use super::*;

messages! {
    Affinity { 1 nodeAffinity (NodeAffinity), 2 podAffinity (PodAffinity), 3 podAntiAffinity (PodAntiAffinity) }
    ContainerExtendedResourceRequest { 1 containerName String, 2 resourceName String, 3 requestName String }
    ContainerState {
        1 waiting (ContainerStateWaiting), 2 running (ContainerStateRunning), 3 terminated (ContainerStateTerminated),
    }
    ContainerStateRunning { 1 startedAt Time }
    ContainerStateTerminated {
        1 exitCode Int, 2 signal Int, 3 reason String, 4 message String, 5 startedAt Time, 6 finishedAt Time,
        7 containerID String,
    }
    ContainerStateWaiting { 1 reason String, 2 message String }
    ContainerStatus {
        1 name String, 2 state ContainerState, 3 lastState ContainerState, 4 ready Bool, 5 restartCount Int,
        6 image String, 7 imageID String, 8 containerID String, 9 started (Bool), 10 allocatedResources {Quantity},
        11 resources (ResourceRequirements), 12 volumeMounts [VolumeMountStatus], 13 user (ContainerUser),
        14 allocatedResourcesStatus [ResourceStatus], 15 stopSignal (String),
    }
    ContainerUser { 1 linux (LinuxContainerUser) }
    EvictionResponder { 1 name String, 2 priority (Int) }
    HostAlias { 1 ip String, 2 hostnames [String] }
    HostIP { 1 ip String }
    ImageVolumeStatus { 1 imageRef String }
    LinuxContainerUser { 1 uid Int, 2 gid Int, 3 supplementalGroups [Int] }
    NodeAffinity {
        1 requiredDuringSchedulingIgnoredDuringExecution (NodeSelector),
        2 preferredDuringSchedulingIgnoredDuringExecution [PreferredSchedulingTerm],
    }
    NodeAllocatableMappedResources { 1 name String, 2 quantity (Quantity) }
    NodeAllocatableOverheadResources { 1 name String, 2 perPod (Quantity), 3 perContainer (Quantity) }
    NodeAllocatableResourceClaimStatus {
        1 resourceClaimName String, 2 containers [String], 4 mapping [NodeAllocatableMappedResources],
        5 overhead [NodeAllocatableOverheadResources],
    }
    NodeSelector { 1 nodeSelectorTerms [NodeSelectorTerm] }
    NodeSelectorRequirement { 1 key String, 2 operator String, 3 values [String] }
    NodeSelectorTerm { 1 matchExpressions [NodeSelectorRequirement], 2 matchFields [NodeSelectorRequirement] }
    Pod { 1 metadata ObjectMeta, 2 spec PodSpec, 3 status PodStatus }
    PodAffinity {
        1 requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm],
        2 preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm],
    }
    PodAffinityTerm {
        1 labelSelector (LabelSelector), 2 namespaces [String], 3 topologyKey String,
        4 namespaceSelector (LabelSelector), 5 matchLabelKeys [String], 6 mismatchLabelKeys [String],
    }
    PodAntiAffinity {
        1 requiredDuringSchedulingIgnoredDuringExecution [PodAffinityTerm],
        2 preferredDuringSchedulingIgnoredDuringExecution [WeightedPodAffinityTerm],
    }
    PodCondition {
        1 type String, 2 status String, 3 lastProbeTime Time, 4 lastTransitionTime Time, 5 reason String,
        6 message String, 7 observedGeneration Int,
    }
    PodDNSConfig { 1 nameservers [String], 2 searches [String], 3 options [PodDNSConfigOption] }
    PodDNSConfigOption { 1 name String, 2 value (String) }
    PodExtendedResourceClaimStatus { 1 requestMappings [ContainerExtendedResourceRequest], 2 resourceClaimName String }
    PodIP { 1 ip String }
    PodOS { 1 name String }
    PodReadinessGate { 1 conditionType String }
    PodResourceClaim { 1 name String, 3 resourceClaimName (String), 4 resourceClaimTemplateName (String) }
    PodResourceClaimStatus { 1 name String, 2 resourceClaimName (String) }
    PodSchedulingGate { 1 name String }
    PodSchedulingGroup { 1 podGroupName (String) }
    PodSecurityContext {
        1 seLinuxOptions (SELinuxOptions), 2 runAsUser (Int), 3 runAsNonRoot (Bool), 4 supplementalGroups [Int],
        5 fsGroup (Int), 6 runAsGroup (Int), 7 sysctls [Sysctl], 8 windowsOptions (WindowsSecurityContextOptions),
        9 fsGroupChangePolicy (String), 10 seccompProfile (SeccompProfile), 11 appArmorProfile (AppArmorProfile),
        12 supplementalGroupsPolicy (String), 13 seLinuxChangePolicy (String),
    }
    PodSpec {
        1 volumes [Volume], 2 containers [Container], 3 restartPolicy String, 4 terminationGracePeriodSeconds (Int),
        5 activeDeadlineSeconds (Int), 6 dnsPolicy String, 7 nodeSelector {String}, 8 serviceAccountName String,
        9 serviceAccount String, 10 nodeName String, 11 hostNetwork Bool, 12 hostPID Bool, 13 hostIPC Bool,
        14 securityContext (PodSecurityContext), 15 imagePullSecrets [LocalObjectReference], 16 hostname String,
        17 subdomain String, 18 affinity (Affinity), 19 schedulerName String, 20 initContainers [Container],
        21 automountServiceAccountToken (Bool), 22 tolerations [Toleration], 23 hostAliases [HostAlias],
        24 priorityClassName String, 25 priority (Int), 26 dnsConfig (PodDNSConfig), 27 shareProcessNamespace (Bool),
        28 readinessGates [PodReadinessGate], 29 runtimeClassName (String), 30 enableServiceLinks (Bool),
        31 preemptionPolicy (String), 32 overhead {Quantity}, 33 topologySpreadConstraints [TopologySpreadConstraint],
        34 ephemeralContainers [EphemeralContainer], 35 setHostnameAsFQDN (Bool), 36 os (PodOS), 37 hostUsers (Bool),
        38 schedulingGates [PodSchedulingGate], 39 resourceClaims [PodResourceClaim],
        40 resources (ResourceRequirements), 41 hostnameOverride (String), 43 schedulingGroup (PodSchedulingGroup),
        44 evictionResponders [EvictionResponder],
    }
    PodStatus {
        1 phase String, 2 conditions [PodCondition], 3 message String, 4 reason String, 5 hostIP String, 6 podIP String,
        7 startTime (Time), 8 containerStatuses [ContainerStatus], 9 qosClass String,
        10 initContainerStatuses [ContainerStatus], 11 nominatedNodeName String, 12 podIPs [PodIP],
        13 ephemeralContainerStatuses [ContainerStatus], 14 resize String,
        15 resourceClaimStatuses [PodResourceClaimStatus], 16 hostIPs [HostIP], 17 observedGeneration Int,
        18 extendedResourceClaimStatus (PodExtendedResourceClaimStatus), 19 allocatedResources {Quantity},
        20 resources (ResourceRequirements),
        21 nodeAllocatableResourceClaimStatuses [NodeAllocatableResourceClaimStatus], 22 volumeHealth [PodVolumeHealth],
    }
    PodTemplateSpec { 1 metadata ObjectMeta, 2 spec PodSpec }
    PodVolumeHealth { 1 name String, 2 healthConditions [VolumeHealthCondition], 3 lastTransitionTime Time }
    PreferredSchedulingTerm { 1 weight Int, 2 preference NodeSelectorTerm }
    ResourceHealth { 1 resourceID String, 2 health String, 6 message (String) }
    ResourceStatus { 1 name String, 2 resources [ResourceHealth] }
    Sysctl { 1 name String, 2 value String }
    Toleration { 1 key String, 2 operator String, 3 value String, 4 effect String, 5 tolerationSeconds (Int) }
    TopologySpreadConstraint {
        1 maxSkew Int, 2 topologyKey String, 3 whenUnsatisfiable String, 4 labelSelector (LabelSelector),
        5 minDomains (Int), 6 nodeAffinityPolicy (String), 7 nodeTaintsPolicy (String), 8 matchLabelKeys [String],
    }
    VolumeHealthCondition { 1 status String, 2 reason String, 3 message String }
    VolumeMountStatus {
        1 name String, 2 mountPath String, 3 readOnly Bool, 4 recursiveReadOnly (String), 5 volumeStatus (VolumeStatus),
    }
    VolumeStatus { 1 image (ImageVolumeStatus) }
    WeightedPodAffinityTerm { 1 weight Int, 2 podAffinityTerm PodAffinityTerm }
}
