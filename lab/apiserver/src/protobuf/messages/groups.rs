//! The other API groups.

use super::*;

messages! {
    // apps/v1
    Deployment { 1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status DeploymentStatus }
    DeploymentCondition {
        1 type String, 2 status String, 4 reason String, 5 message String, 6 lastUpdateTime Time,
        7 lastTransitionTime Time,
    }
    DeploymentSpec {
        1 replicas (Int), 2 selector (LabelSelector), 3 template PodTemplateSpec, 4 strategy DeploymentStrategy,
        5 minReadySeconds Int, 6 revisionHistoryLimit (Int), 7 paused Bool, 9 progressDeadlineSeconds (Int),
    }
    DeploymentStatus {
        1 observedGeneration Int, 2 replicas Int, 3 updatedReplicas Int, 4 availableReplicas Int,
        5 unavailableReplicas Int, 6 conditions [DeploymentCondition], 7 readyReplicas Int, 8 collisionCount (Int),
        9 terminatingReplicas (Int),
    }
    DeploymentStrategy { 1 type String, 2 rollingUpdate (RollingUpdateDeployment) }
    ReplicaSet { 1 metadata ObjectMeta, 2 spec ReplicaSetSpec, 3 status ReplicaSetStatus }
    ReplicaSetCondition { 1 type String, 2 status String, 3 lastTransitionTime Time, 4 reason String, 5 message String }
    ReplicaSetSpec { 1 replicas (Int), 2 selector (LabelSelector), 3 template PodTemplateSpec, 4 minReadySeconds Int }
    ReplicaSetStatus {
        1 replicas Int, 2 fullyLabeledReplicas Int, 3 observedGeneration Int, 4 readyReplicas Int,
        5 availableReplicas Int, 6 conditions [ReplicaSetCondition], 7 terminatingReplicas (Int),
    }
    RollingUpdateDeployment { 1 maxUnavailable (IntOrString), 2 maxSurge (IntOrString) }

    // autoscaling/v1
    Scale { 1 metadata ObjectMeta, 2 spec ScaleSpec, 3 status ScaleStatus }
    ScaleSpec { 1 replicas Int }
    ScaleStatus { 1 replicas Int, 2 selector String }

    // coordination/v1
    Lease { 1 metadata ObjectMeta, 2 spec LeaseSpec }
    LeaseSpec {
        1 holderIdentity (String), 2 leaseDurationSeconds (Int), 3 acquireTime (MicroTime), 4 renewTime (MicroTime),
        5 leaseTransitions (Int), 6 strategy (String), 7 preferredHolder (String),
    }

    // discovery/v1
    Endpoint {
        1 addresses [String], 2 conditions EndpointConditions, 3 hostname (String), 4 targetRef (ObjectReference),
        5 deprecatedTopology {String}, 6 nodeName (String), 7 zone (String), 8 hints (EndpointHints),
    }
    EndpointConditions { 1 ready (Bool), 2 serving (Bool), 3 terminating (Bool) }
    EndpointHints { 1 forZones [ForZone], 2 forNodes [ForNode] }
    EndpointPort { 1 name (String), 2 protocol (String), 3 port (Int), 4 appProtocol (String) }
    EndpointSlice { 1 metadata ObjectMeta, 2 endpoints [Endpoint], 3 ports [EndpointPort], 4 addressType String }
    ForNode { 1 name String }
    ForZone { 1 name String }

    // events/v1
    EventsEvent {
        1 metadata ObjectMeta, 2 eventTime MicroTime, 3 series (EventsEventSeries), 4 reportingController String,
        5 reportingInstance String, 6 action String, 7 reason String, 8 regarding ObjectReference,
        9 related (ObjectReference), 10 note String, 11 type String, 12 deprecatedSource EventSource,
        13 deprecatedFirstTimestamp Time, 14 deprecatedLastTimestamp Time, 15 deprecatedCount Int,
    }
    EventsEventSeries { 1 count Int, 2 lastObservedTime MicroTime }

    // networking/v1
    NetworkPolicy { 1 metadata ObjectMeta }
    ServiceCIDR { 1 metadata ObjectMeta, 2 spec ServiceCIDRSpec, 3 status ServiceCIDRStatus }
    ServiceCIDRSpec { 1 cidrs [String] }
    ServiceCIDRStatus { 1 conditions [Condition] }

    // policy/v1
    Eviction { 1 metadata ObjectMeta, 2 deleteOptions (DeleteOptions) }
}
