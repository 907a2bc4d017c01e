//! The names of Kubernetes' feature gates that kube-proxy accepts and does not act on.
//!
//! Every program of Kubernetes takes every gate that its libraries register, whatever it does with it: kube-proxy 1.36 those of
//! pkg/features, k8s.io/apiserver, apiextensions-apiserver and controller-manager. Those that 1.37 brought are here, too.

/// Gates that may be turned on and off.
#[rustfmt::skip]
pub(super) const OPEN: &[&str] = &[
    "APIResponseCompression", "APIServerIdentity", "APIServerWebhookAuthenticationToken", "APIServingWithRoutine",
    "AllowDNSOnlyNodeCSR", "AllowInsecureKubeletCertificateSigningRequests", "AllowParsingUserUIDFromCertAuth",
    "AllowUnsafeMalformedObjectDeletion", "AtomicWriteVolumeUserFields",
    "AuthorizePodWebsocketUpgradeCreatePermission", "CBORServingAndStorage", "CPUManagerPolicyAlphaOptions",
    "CPUManagerPolicyBetaOptions", "CRDObservedGenerationTracking", "CRIListStreaming", "CSIVolumeHealth",
    "ChangeContainerStatusOnKubeletRestart", "ClearingNominatedNodeNameAfterBinding",
    "CloudControllerManagerWatchBasedRoutesReconciliation", "CloudControllerManagerWebhook", "ClusterTrustBundle",
    "ClusterTrustBundleProjection", "CompositePodGroup", "ConcurrentWatchObjectDecode", "ConstrainedImpersonation",
    "ContainerCheckpoint", "ContainerRestartRules", "ContainerStopSignals",
    "ControllerManagerReleaseLeaderElectionLockOnExit", "CoordinatedLeaderElection",
    "CrossNamespaceVolumeDataSource", "CustomCPUCFSQuotaPeriod", "DRAConsumableCapacity", "DRADerivedAttributes",
    "DRADeviceBindingConditions", "DRADeviceCompatibilityGroups", "DRADeviceTaintRules", "DRADeviceTaints",
    "DRAExtendedResource", "DRAListTypeAttributes", "DRANodeAllocatableResources", "DRAOptionalNodeOperations",
    "DRAPartitionableDevices", "DRAPartitionableDevicesType", "DRAPrioritizedList", "DRAResourceClaimDeviceStatus",
    "DRAResourceClaimGranularStatusAuthorization", "DRAResourcePoolStatus", "DRASchedulerFilterTimeout",
    "DRAWorkloadResourceClaims", "DeclarativeValidationBeta", "DeclarativeValidationTakeover", "DefaultPodSysctls",
    "DeploymentReplicaSetTerminatingReplicas", "DetectCacheInconsistency", "DisableCPUQuotaWithExclusiveCPUs",
    "EmptyDirVolumeMode", "EnvFiles", "EtcdRangeStream", "EventedPLEG", "ExcludeAdmissionWebhookVirtualResources",
    "ExtendWebSocketsToKubelet", "GRPCContainerProbeTLS", "GangScheduling", "GenericWorkload",
    "GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority", "H2CContainerProbe",
    "HPAConfigurableTolerance", "HPAScaleToZero", "HostnameOverride", "HugepageAwareEviction",
    "ImageVolumeWithDigest", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingExclusiveCPUs",
    "InPlacePodVerticalScalingExclusiveMemory", "InPlacePodVerticalScalingInitContainers",
    "InPlacePodVerticalScalingMemoryBackedVolumes", "InPlacePodVerticalScalingSchedulerPreemption", "KMSv1",
    "KubeletCrashLoopBackOffMax", "KubeletEnsureSecretPulledImages", "KubeletInUserNamespace",
    "KubeletPodResourcesListUseActivePods", "KubeletRegistrationGetOnExistsOnly", "KubeletSeparateDiskGC",
    "KubeletServiceAccountTokenForCredentialProviders", "ListFromCacheSnapshot",
    "LocalStorageCapacityIsolationFSQuotaMonitoring", "ManifestBasedAdmissionControlConfig",
    "MatchLabelKeysInPodTopologySpread", "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "MaxUnavailableStatefulSet", "MemoryQoS", "MutablePVNodeAffinity", "MutablePodResourcesForSuspendedJobs",
    "MutableSchedulingDirectivesForSuspendedJobs", "MutatingAdmissionPolicy", "NodeDeclaredFeatures",
    "NodeLifecycleConditions", "NominatedNodeNameForExpectation", "OpenAPIEnums", "OpportunisticBatching",
    "PLEGOnDemandRelist", "PersistentVolumeClaimUnusedSinceTime", "PodAndContainerStatsFromCRI",
    "PodCertificateRequest", "PodDeletionCost", "PodGroupPreemptionPolicy", "PodLevelResourceManagers",
    "PodLevelResources", "PodLogsQuerySplitStreams", "PodReadyToStartContainersCondition",
    "PodTopologyLabelsAdmission", "PodsAPI", "PortForwardWebsockets", "PreventStaticPodAPIReferences",
    "QOSReserved", "ReduceDefaultCrashLoopBackOffDecay", "RelaxedServiceNameValidation",
    "ReloadKubeletClientCAFile", "ReloadKubeletServerCertificateFile", "RemoteRequestHeaderUID",
    "ResourceHealthStatus", "ResourceHealthStatusMessage", "RestartAllContainersOnContainerExits",
    "RotateKubeletServerCertificate", "RuntimeClassInImageCriApi", "SELinuxMount", "SchedulerAsyncAPICalls",
    "SchedulerAsyncPreemption", "SchedulerPopFromBackoffQ", "ServiceAccountNodeAudienceRestriction",
    "ServiceCIDRStatusFieldWiping", "ShardedListAndWatch", "SizeBasedListCostEstimate",
    "StaleControllerConsistencyDaemonSet", "StaleControllerConsistencyJob", "StaleControllerConsistencyReplicaSet",
    "StaleControllerConsistencyStatefulSet", "StatefulSetRecreateStrategy", "StatefulSetSemanticRevisionComparison",
    "StorageCapacityScoring", "StorageNamespaceIndex", "StorageVersionAPI", "StorageVersionHash",
    "StorageVersionMigrator", "StrictIPCIDRValidation", "StructuredAuthenticationConfigurationEgressSelector",
    "StructuredAuthenticationConfigurationJWKSMetrics", "TaintTolerationComparisonOperators",
    "TokenRequestServiceAccountUIDValidation", "TopologyAwareWorkloadScheduling",
    "TopologyManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions",
    "TranslateStreamCloseWebsocketRequests", "UnauthenticatedHTTP2DOSMitigation",
    "UnknownVersionInteroperabilityProxy", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions",
    "VolumeLimitScaling", "WatchCacheInitializationPostStartHook", "WatchList", "WindowsCPUAndMemoryAffinity",
    "WindowsGracefulNodeShutdown", "WindowsHostNetwork", "WorkloadAwarePreemption", "WorkloadWithJob",
];

/// Gates that are locked to `true`: they cannot be turned off any more.
#[rustfmt::skip]
pub(super) const LOCKED_ON: &[&str] = &[
    "APIServerTracing", "AggregatedDiscoveryRemoveBetaType", "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource", "AuthorizeNodeWithSelectors", "AuthorizeWithSelectors", "BtreeWatchCache",
    "CPUManagerPolicyOptions", "CRDValidationRatcheting", "CSIServiceAccountTokenSecrets",
    "ConsistentListFromCache", "CustomResourceFieldSelectors", "DRAAdminAccess", "DeclarativeValidation",
    "DisableAllocatorDualWrite", "DisableNodeKubeProxyVersion", "DynamicResourceAllocation", "ExecProbeTimeout",
    "ExternalServiceAccountTokenSigner", "ImageMaximumGCAge", "ImageVolume", "InPlacePodVerticalScaling",
    "JobBackoffLimitPerIndex", "JobManagedBy", "JobPodReplacementPolicy", "JobSuccessPolicy",
    "KubeletCgroupDriverFromCRI", "KubeletFineGrainedAuthz", "KubeletPSI", "KubeletPodResourcesDynamicResources",
    "KubeletPodResourcesGet", "KubeletTracing", "LogarithmicScaleDown", "MatchLabelKeysInPodAffinity",
    "MutableCSINodeAllocatableCount", "NodeInclusionPolicyInPodTopologySpread", "NodeLogQuery", "NodeSwap",
    "OrderedNamespaceDeletion", "PodLifecycleSleepAction", "PodLifecycleSleepActionAllowZero",
    "PodObservedGenerationTracking", "PodSchedulingReadiness", "ProcMountType", "RecoverVolumeExpansionFailure",
    "RecursiveReadOnlyMounts", "RelaxedDNSSearchValidation", "RelaxedEnvironmentVariableValidation",
    "ResilientWatchCacheInitialization", "RetryGenerateName", "SELinuxChangePolicy", "SELinuxMountReadWriteOncePod",
    "SchedulerQueueingHints", "SeparateTaintEvictionController", "ServiceAccountTokenJTI",
    "ServiceAccountTokenNodeBinding", "ServiceAccountTokenNodeBindingValidation", "ServiceAccountTokenPodNodeInfo",
    "SidecarContainers", "StreamingCollectionEncodingToJSON", "StreamingCollectionEncodingToProtobuf",
    "StructuredAuthenticationConfiguration", "SupplementalGroupsPolicy", "SystemdWatchdog",
    "TopologyManagerPolicyOptions", "UserNamespacesSupport", "VolumeAttributesClass",
];

/// Gates that are locked to `false`: they cannot be turned on any more.
#[rustfmt::skip]
pub(super) const LOCKED_OFF: &[&str] = &[
    "AllowOverwriteTerminationGracePeriodSeconds", "GitRepoVolumeDriver", "SeparateCacheWatchRPC",
];
