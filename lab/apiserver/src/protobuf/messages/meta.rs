//! `meta/v1`.

use super::*;

messages! {
    Condition {
        1 type String, 2 status String, 3 observedGeneration Int, 4 lastTransitionTime Time, 5 reason String,
        6 message String,
    }
    DeleteOptions {
        1 gracePeriodSeconds (Int), 2 preconditions (Preconditions), 3 orphanDependents (Bool),
        4 propagationPolicy (String), 5 dryRun [String], 6 ignoreStoreReadErrorWithClusterBreakingPotential (Bool),
    }
    LabelSelector { 1 matchLabels {String}, 2 matchExpressions [LabelSelectorRequirement] }
    LabelSelectorRequirement { 1 key String, 2 operator String, 3 values [String] }
    ListMeta {
        1 selfLink String, 2 resourceVersion String, 3 continue String, 4 remainingItemCount (Int),
        5 shardInfo (ShardInfo),
    }
    ManagedFieldsEntry {
        1 manager String, 2 operation String, 3 apiVersion String, 4 time (Time), 6 fieldsType String, 7 fieldsV1 (Raw),
        8 subresource String,
    }
    ObjectMeta {
        1 name String, 2 generateName String, 3 namespace String, 4 selfLink String, 5 uid String,
        6 resourceVersion String, 7 generation Int, 8 creationTimestamp Time, 9 deletionTimestamp (Time),
        10 deletionGracePeriodSeconds (Int), 11 labels {String}, 12 annotations {String},
        13 ownerReferences [OwnerReference], 14 finalizers [String], 17 managedFields [ManagedFieldsEntry],
    }
    OwnerReference {
        1 kind String, 3 name String, 4 uid String, 5 apiVersion String, 6 controller (Bool),
        7 blockOwnerDeletion (Bool),
    }
    PartialObjectMetadata { 1 metadata ObjectMeta }
    Preconditions { 1 uid (String), 2 resourceVersion (String) }
    ShardInfo { 1 selector String }
    Status {
        1 metadata ListMeta, 2 status String, 3 message String, 4 reason String, 5 details (StatusDetails), 6 code Int,
    }
    StatusCause { 1 reason String, 2 message String, 3 field String }
    StatusDetails {
        1 name String, 2 group String, 3 kind String, 4 causes [StatusCause], 5 retryAfterSeconds Int, 6 uid String,
    }
}
