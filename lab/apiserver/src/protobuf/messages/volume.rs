//! Pods of `core/v1`: volumes.

use super::*;

messages! {
    AWSElasticBlockStoreVolumeSource { 1 volumeID String, 2 fsType String, 3 partition Int, 4 readOnly Bool }
    AzureDiskVolumeSource {
        1 diskName String, 2 diskURI String, 3 cachingMode (String), 4 fsType (String), 5 readOnly (Bool),
        6 kind (String),
    }
    AzureFileVolumeSource { 1 secretName String, 2 shareName String, 3 readOnly Bool }
    CSIVolumeSource {
        1 driver String, 2 readOnly (Bool), 3 fsType (String), 4 volumeAttributes {String},
        5 nodePublishSecretRef (LocalObjectReference),
    }
    CephFSVolumeSource {
        1 monitors [String], 2 path String, 3 user String, 4 secretFile String, 5 secretRef (LocalObjectReference),
        6 readOnly Bool,
    }
    CinderVolumeSource { 1 volumeID String, 2 fsType String, 3 readOnly Bool, 4 secretRef (LocalObjectReference) }
    ClusterTrustBundleProjection {
        1 name (String), 2 signerName (String), 3 labelSelector (LabelSelector), 4 path String, 5 optional (Bool),
        6 user (Int),
    }
    ConfigMapProjection { 1 inline LocalObjectReference, 2 items [KeyToPath], 4 optional (Bool) }
    ConfigMapVolumeSource {
        1 inline LocalObjectReference, 2 items [KeyToPath], 3 defaultMode (Int), 4 optional (Bool), 5 defaultUser (Int),
    }
    DownwardAPIProjection { 1 items [DownwardAPIVolumeFile] }
    DownwardAPIVolumeFile {
        1 path String, 2 fieldRef (ObjectFieldSelector), 3 resourceFieldRef (ResourceFieldSelector), 4 mode (Int),
        5 user (Int),
    }
    DownwardAPIVolumeSource { 1 items [DownwardAPIVolumeFile], 2 defaultMode (Int), 3 defaultUser (Int) }
    EmptyDirVolumeSource { 1 medium String, 2 sizeLimit (Quantity), 3 mode (Int) }
    EphemeralVolumeSource { 1 volumeClaimTemplate (PersistentVolumeClaimTemplate) }
    FCVolumeSource { 1 targetWWNs [String], 2 lun (Int), 3 fsType String, 4 readOnly Bool, 5 wwids [String] }
    FlexVolumeSource {
        1 driver String, 2 fsType String, 3 secretRef (LocalObjectReference), 4 readOnly Bool, 5 options {String},
    }
    FlockerVolumeSource { 1 datasetName String, 2 datasetUUID String }
    GCEPersistentDiskVolumeSource { 1 pdName String, 2 fsType String, 3 partition Int, 4 readOnly Bool }
    GitRepoVolumeSource { 1 repository String, 2 revision String, 3 directory String }
    GlusterfsVolumeSource { 1 endpoints String, 2 path String, 3 readOnly Bool }
    HostPathVolumeSource { 1 path String, 2 type (String) }
    ISCSIVolumeSource {
        1 targetPortal String, 2 iqn String, 3 lun Int, 4 iscsiInterface String, 5 fsType String, 6 readOnly Bool,
        7 portals [String], 8 chapAuthDiscovery Bool, 10 secretRef (LocalObjectReference), 11 chapAuthSession Bool,
        12 initiatorName (String),
    }
    ImageVolumeSource { 1 reference String, 2 pullPolicy String }
    KeyToPath { 1 key String, 2 path String, 3 mode (Int), 4 user (Int) }
    NFSVolumeSource { 1 server String, 2 path String, 3 readOnly Bool }
    PersistentVolumeClaimSpec {
        1 accessModes [String], 2 resources VolumeResourceRequirements, 3 volumeName String, 4 selector (LabelSelector),
        5 storageClassName (String), 6 volumeMode (String), 7 dataSource (TypedLocalObjectReference),
        8 dataSourceRef (TypedObjectReference), 9 volumeAttributesClassName (String),
    }
    PersistentVolumeClaimTemplate { 1 metadata ObjectMeta, 2 spec PersistentVolumeClaimSpec }
    PersistentVolumeClaimVolumeSource { 1 claimName String, 2 readOnly Bool }
    PhotonPersistentDiskVolumeSource { 1 pdID String, 2 fsType String }
    PodCertificateProjection {
        1 signerName String, 2 keyType String, 3 maxExpirationSeconds (Int), 4 credentialBundlePath String,
        5 keyPath String, 6 certificateChainPath String, 7 userAnnotations {String}, 8 user (Int),
    }
    PortworxVolumeSource { 1 volumeID String, 2 fsType String, 3 readOnly Bool }
    ProjectedVolumeSource { 1 sources [VolumeProjection], 2 defaultMode (Int), 3 defaultUser (Int) }
    QuobyteVolumeSource {
        1 registry String, 2 volume String, 3 readOnly Bool, 4 user String, 5 group String, 6 tenant String,
    }
    RBDVolumeSource {
        1 monitors [String], 2 image String, 3 fsType String, 4 pool String, 5 user String, 6 keyring String,
        7 secretRef (LocalObjectReference), 8 readOnly Bool,
    }
    ScaleIOVolumeSource {
        1 gateway String, 2 system String, 3 secretRef (LocalObjectReference), 4 sslEnabled Bool,
        5 protectionDomain String, 6 storagePool String, 7 storageMode String, 8 volumeName String, 9 fsType String,
        10 readOnly Bool,
    }
    SecretProjection { 1 inline LocalObjectReference, 2 items [KeyToPath], 4 optional (Bool) }
    SecretVolumeSource {
        1 secretName String, 2 items [KeyToPath], 3 defaultMode (Int), 4 optional (Bool), 5 defaultUser (Int),
    }
    ServiceAccountTokenProjection { 1 audience String, 2 expirationSeconds (Int), 3 path String, 4 user (Int) }
    StorageOSVolumeSource {
        1 volumeName String, 2 volumeNamespace String, 3 fsType String, 4 readOnly Bool,
        5 secretRef (LocalObjectReference),
    }
    TypedLocalObjectReference { 1 apiGroup (String), 2 kind String, 3 name String }
    TypedObjectReference { 1 apiGroup (String), 2 kind String, 3 name String, 4 namespace (String) }
    Volume { 1 name String, 2 inline VolumeSource }
    VolumeProjection {
        1 secret (SecretProjection), 2 downwardAPI (DownwardAPIProjection), 3 configMap (ConfigMapProjection),
        4 serviceAccountToken (ServiceAccountTokenProjection), 5 clusterTrustBundle (ClusterTrustBundleProjection),
        6 podCertificate (PodCertificateProjection),
    }
    VolumeResourceRequirements { 1 limits {Quantity}, 2 requests {Quantity} }
    VolumeSource {
        1 hostPath (HostPathVolumeSource), 2 emptyDir (EmptyDirVolumeSource),
        3 gcePersistentDisk (GCEPersistentDiskVolumeSource), 4 awsElasticBlockStore (AWSElasticBlockStoreVolumeSource),
        5 gitRepo (GitRepoVolumeSource), 6 secret (SecretVolumeSource), 7 nfs (NFSVolumeSource),
        8 iscsi (ISCSIVolumeSource), 9 glusterfs (GlusterfsVolumeSource),
        10 persistentVolumeClaim (PersistentVolumeClaimVolumeSource), 11 rbd (RBDVolumeSource),
        12 flexVolume (FlexVolumeSource), 13 cinder (CinderVolumeSource), 14 cephfs (CephFSVolumeSource),
        15 flocker (FlockerVolumeSource), 16 downwardAPI (DownwardAPIVolumeSource), 17 fc (FCVolumeSource),
        18 azureFile (AzureFileVolumeSource), 19 configMap (ConfigMapVolumeSource),
        20 vsphereVolume (VsphereVirtualDiskVolumeSource), 21 quobyte (QuobyteVolumeSource),
        22 azureDisk (AzureDiskVolumeSource), 23 photonPersistentDisk (PhotonPersistentDiskVolumeSource),
        24 portworxVolume (PortworxVolumeSource), 25 scaleIO (ScaleIOVolumeSource),
        26 projected (ProjectedVolumeSource), 27 storageos (StorageOSVolumeSource), 28 csi (CSIVolumeSource),
        29 ephemeral (EphemeralVolumeSource), 30 image (ImageVolumeSource),
    }
    VsphereVirtualDiskVolumeSource {
        1 volumePath String, 2 fsType String, 3 storagePolicyName String, 4 storagePolicyID String,
    }
}
