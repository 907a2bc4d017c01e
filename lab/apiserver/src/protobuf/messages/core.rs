//! `core/v1` without Pods.

use super::*;

messages! {
    AttachedVolume { 1 name String, 2 devicePath String }
    ClientIPConfig { 1 timeoutSeconds (Int) }
    ConfigMapNodeConfigSource {
        1 namespace String, 2 name String, 3 uid String, 4 resourceVersion String, 5 kubeletConfigKey String,
    }
    ContainerImage { 1 names [String], 2 sizeBytes Int }
    DaemonEndpoint { 1 Port Int }
    Endpoints { 1 metadata ObjectMeta, 2 subsets [EndpointSubset] }
    EndpointSubset { 1 addresses [EndpointAddress], 2 notReadyAddresses [EndpointAddress], 3 ports [EndpointsPort] }
    EndpointAddress { 1 ip String, 2 targetRef (ObjectReference), 3 hostname String, 4 nodeName (String) }
    EndpointsPort { 1 name String, 2 port Int, 3 protocol String, 4 appProtocol (String) }
    Event {
        1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason String, 4 message String,
        5 source EventSource, 6 firstTimestamp Time, 7 lastTimestamp Time, 8 count Int, 9 type String,
        10 eventTime MicroTime, 11 series (EventSeries), 12 action String, 13 related (ObjectReference),
        14 reportingComponent String, 15 reportingInstance String,
    }
    EventSeries { 1 count Int, 2 lastObservedTime MicroTime }
    EventSource { 1 component String, 2 host String }
    LoadBalancerIngress { 1 ip String, 2 hostname String, 3 ipMode (String), 4 ports [PortStatus] }
    LoadBalancerStatus { 1 ingress [LoadBalancerIngress] }
    Namespace { 1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status NamespaceStatus }
    NamespaceCondition { 1 type String, 2 status String, 4 lastTransitionTime Time, 5 reason String, 6 message String }
    NamespaceSpec { 1 finalizers [String] }
    NamespaceStatus { 1 phase String, 2 conditions [NamespaceCondition] }
    Node { 1 metadata ObjectMeta, 2 spec NodeSpec, 3 status NodeStatus }
    NodeAddress { 1 type String, 2 address String }
    NodeCondition {
        1 type String, 2 status String, 3 lastHeartbeatTime Time, 4 lastTransitionTime Time, 5 reason String,
        6 message String,
    }
    NodeConfigSource { 2 configMap (ConfigMapNodeConfigSource) }
    NodeConfigStatus {
        1 assigned (NodeConfigSource), 2 active (NodeConfigSource), 3 lastKnownGood (NodeConfigSource), 4 error String,
    }
    NodeDaemonEndpoints { 1 kubeletEndpoint DaemonEndpoint }
    NodeFeatures { 1 supplementalGroupsPolicy (Bool) }
    NodePodPreemptionPolicy { 1 disableResizePreemption [String] }
    NodeRuntimeHandler { 1 name String, 2 features (NodeRuntimeHandlerFeatures) }
    NodeRuntimeHandlerFeatures { 1 recursiveReadOnlyMounts (Bool), 2 userNamespaces (Bool) }
    NodeSpec {
        1 podCIDR String, 2 externalID String, 3 providerID String, 4 unschedulable Bool, 5 taints [Taint],
        6 configSource (NodeConfigSource), 7 podCIDRs [String], 8 podPreemptionPolicy (NodePodPreemptionPolicy),
    }
    NodeStatus {
        1 capacity {Quantity}, 2 allocatable {Quantity}, 3 phase String, 4 conditions [NodeCondition],
        5 addresses [NodeAddress], 6 daemonEndpoints NodeDaemonEndpoints, 7 nodeInfo NodeSystemInfo,
        8 images [ContainerImage], 9 volumesInUse [String], 10 volumesAttached [AttachedVolume],
        11 config (NodeConfigStatus), 12 runtimeHandlers [NodeRuntimeHandler], 13 features (NodeFeatures),
        14 declaredFeatures [String],
    }
    NodeSwapStatus { 1 capacity (Int) }
    NodeSystemInfo {
        1 machineID String, 2 systemUUID String, 3 bootID String, 4 kernelVersion String, 5 osImage String,
        6 containerRuntimeVersion String, 7 kubeletVersion String, 8 kubeProxyVersion String, 9 operatingSystem String,
        10 architecture String, 11 swap (NodeSwapStatus),
    }
    ObjectReference {
        1 kind String, 2 namespace String, 3 name String, 4 uid String, 5 apiVersion String, 6 resourceVersion String,
        7 fieldPath String,
    }
    PortStatus { 1 port Int, 2 protocol String, 3 error (String) }
    Service { 1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status ServiceStatus }
    ServicePort {
        1 name String, 2 protocol String, 3 port Int, 4 targetPort IntOrString, 5 nodePort Int, 6 appProtocol (String),
    }
    ServiceSpec {
        1 ports [ServicePort], 2 selector {String}, 3 clusterIP String, 4 type String, 5 externalIPs [String],
        7 sessionAffinity String, 8 loadBalancerIP String, 9 loadBalancerSourceRanges [String], 10 externalName String,
        11 externalTrafficPolicy String, 12 healthCheckNodePort Int, 13 publishNotReadyAddresses Bool,
        14 sessionAffinityConfig (SessionAffinityConfig), 17 ipFamilyPolicy (String), 18 clusterIPs [String],
        19 ipFamilies [String], 20 allocateLoadBalancerNodePorts (Bool), 21 loadBalancerClass (String),
        22 internalTrafficPolicy (String), 23 trafficDistribution (String),
    }
    ServiceStatus { 1 loadBalancer LoadBalancerStatus, 2 conditions [Condition] }
    SessionAffinityConfig { 1 clientIP (ClientIPConfig) }
    Taint { 1 key String, 2 value String, 3 effect String, 4 timeAdded (Time) }
}
