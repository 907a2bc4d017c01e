//! Pods of `core/v1`: containers.

use super::*;

messages! {
    AppArmorProfile { 1 type String, 2 localhostProfile (String) }
    Capabilities { 1 add [String], 2 drop [String] }
    ConfigMapEnvSource { 1 inline LocalObjectReference, 2 optional (Bool) }
    ConfigMapKeySelector { 1 inline LocalObjectReference, 2 key String, 3 optional (Bool) }
    Container {
        1 name String, 2 image String, 3 command [String], 4 args [String], 5 workingDir String,
        6 ports [ContainerPort], 7 env [EnvVar], 8 resources ResourceRequirements, 9 volumeMounts [VolumeMount],
        10 livenessProbe (Probe), 11 readinessProbe (Probe), 12 lifecycle (Lifecycle), 13 terminationMessagePath String,
        14 imagePullPolicy String, 15 securityContext (SecurityContext), 16 stdin Bool, 17 stdinOnce Bool, 18 tty Bool,
        19 envFrom [EnvFromSource], 20 terminationMessagePolicy String, 21 volumeDevices [VolumeDevice],
        22 startupProbe (Probe), 23 resizePolicy [ContainerResizePolicy], 24 restartPolicy (String),
        25 restartPolicyRules [ContainerRestartRule],
    }
    ContainerPort { 1 name String, 2 hostPort Int, 3 containerPort Int, 4 protocol String, 5 hostIP String }
    ContainerResizePolicy { 1 resourceName String, 2 restartPolicy String }
    ContainerRestartRule { 1 action String, 2 exitCodes (ContainerRestartRuleOnExitCodes) }
    ContainerRestartRuleOnExitCodes { 1 operator String, 2 values [Int] }
    EnvFromSource { 1 prefix String, 2 configMapRef (ConfigMapEnvSource), 3 secretRef (SecretEnvSource) }
    EnvVar { 1 name String, 2 value String, 3 valueFrom (EnvVarSource) }
    EnvVarSource {
        1 fieldRef (ObjectFieldSelector), 2 resourceFieldRef (ResourceFieldSelector),
        3 configMapKeyRef (ConfigMapKeySelector), 4 secretKeyRef (SecretKeySelector), 5 fileKeyRef (FileKeySelector),
    }
    EphemeralContainer { 1 inline EphemeralContainerCommon, 2 targetContainerName String }
    EphemeralContainerCommon {
        1 name String, 2 image String, 3 command [String], 4 args [String], 5 workingDir String,
        6 ports [ContainerPort], 7 env [EnvVar], 8 resources ResourceRequirements, 9 volumeMounts [VolumeMount],
        10 livenessProbe (Probe), 11 readinessProbe (Probe), 12 lifecycle (Lifecycle), 13 terminationMessagePath String,
        14 imagePullPolicy String, 15 securityContext (SecurityContext), 16 stdin Bool, 17 stdinOnce Bool, 18 tty Bool,
        19 envFrom [EnvFromSource], 20 terminationMessagePolicy String, 21 volumeDevices [VolumeDevice],
        22 startupProbe (Probe), 23 resizePolicy [ContainerResizePolicy], 24 restartPolicy (String),
        25 restartPolicyRules [ContainerRestartRule],
    }
    ExecAction { 1 command [String] }
    FileKeySelector { 1 volumeName String, 2 path String, 3 key String, 4 optional (Bool) }
    GRPCAction { 1 port Int, 2 service (String), 3 mode (String) }
    HTTPGetAction {
        1 path String, 2 port IntOrString, 3 host String, 4 scheme String, 5 httpHeaders [HTTPHeader],
        6 protocol (String),
    }
    HTTPHeader { 1 name String, 2 value String }
    Lifecycle { 1 postStart (LifecycleHandler), 2 preStop (LifecycleHandler), 3 stopSignal (String) }
    LifecycleHandler {
        1 exec (ExecAction), 2 httpGet (HTTPGetAction), 3 tcpSocket (TCPSocketAction), 4 sleep (SleepAction),
    }
    LocalObjectReference { 1 name String }
    ObjectFieldSelector { 1 apiVersion String, 2 fieldPath String }
    Probe {
        1 inline ProbeHandler, 2 initialDelaySeconds Int, 3 timeoutSeconds Int, 4 periodSeconds Int,
        5 successThreshold Int, 6 failureThreshold Int, 7 terminationGracePeriodSeconds (Int),
    }
    ProbeHandler { 1 exec (ExecAction), 2 httpGet (HTTPGetAction), 3 tcpSocket (TCPSocketAction), 4 grpc (GRPCAction) }
    ResourceClaim { 1 name String, 2 request String }
    ResourceFieldSelector { 1 containerName String, 2 resource String, 3 divisor Quantity }
    ResourceRequirements { 1 limits {Quantity}, 2 requests {Quantity}, 3 claims [ResourceClaim] }
    SELinuxOptions { 1 user String, 2 role String, 3 type String, 4 level String }
    SeccompProfile { 1 type String, 2 localhostProfile (String) }
    SecretEnvSource { 1 inline LocalObjectReference, 2 optional (Bool) }
    SecretKeySelector { 1 inline LocalObjectReference, 2 key String, 3 optional (Bool) }
    SecurityContext {
        1 capabilities (Capabilities), 2 privileged (Bool), 3 seLinuxOptions (SELinuxOptions), 4 runAsUser (Int),
        5 runAsNonRoot (Bool), 6 readOnlyRootFilesystem (Bool), 7 allowPrivilegeEscalation (Bool), 8 runAsGroup (Int),
        9 procMount (String), 10 windowsOptions (WindowsSecurityContextOptions), 11 seccompProfile (SeccompProfile),
        12 appArmorProfile (AppArmorProfile),
    }
    SleepAction { 1 seconds Int }
    TCPSocketAction { 1 port IntOrString, 2 host String }
    VolumeDevice { 1 name String, 2 devicePath String }
    VolumeMount {
        1 name String, 2 readOnly Bool, 3 mountPath String, 4 subPath String, 5 mountPropagation (String),
        6 subPathExpr String, 7 recursiveReadOnly (String), 8 bindMountOptions [String],
    }
    WindowsSecurityContextOptions {
        1 gmsaCredentialSpecName (String), 2 gmsaCredentialSpec (String), 3 runAsUserName (String),
        4 hostProcess (Bool),
    }
}
