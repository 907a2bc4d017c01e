//! Encodes objects in protobuf as an API server does, from their JSON. The field numbers are not the decoder's own: a wrong one would
//! show.

use serde_json::Value;

/// A message and its fields, from the `generated.proto` and `types.go` files of Kubernetes 1.37: NAME=TYPE:NUMBER. `[]` is a list, `?` a
/// pointer; the other scalars are always written.
const SCHEMA: &str = "
ListMeta resourceVersion=string:2 continue=string:3 remainingItemCount=int64?:4
Status metadata=ListMeta:1 status=string:2 message=string:3 reason=string:4 details=StatusDetails?:5 code=int32:6
StatusDetails name=string:1 causes=StatusCause[]:4 retryAfterSeconds=int32:5
StatusCause reason=string:1 message=string:2 field=string:3
ObjectMeta name=string:1 generateName=string:2 namespace=string:3 selfLink=string:4 uid=string:5 resourceVersion=string:6 generation=int64:7 creationTimestamp=Time:8 deletionTimestamp=Time?:9 labels=map:11 annotations=map:12 finalizers=string[]:14 managedFields=ManagedFieldsEntry[]:17
ManagedFieldsEntry manager=string:1 operation=string:2 apiVersion=string:3 time=Time?:4 fieldsType=string:6 subresource=string:8
Service metadata=ObjectMeta:1 spec=ServiceSpec:2 status=ServiceStatus:3
ServiceSpec ports=ServicePort[]:1 selector=map:2 clusterIP=string:3 clusterIPs=string[]:18 type=string:4 externalIPs=string[]:5 sessionAffinity=string:7 loadBalancerIP=string:8 loadBalancerSourceRanges=string[]:9 externalName=string:10 externalTrafficPolicy=string:11 healthCheckNodePort=int32:12 publishNotReadyAddresses=bool:13 sessionAffinityConfig=SessionAffinityConfig?:14 ipFamilies=string[]:19 ipFamilyPolicy=string?:17 allocateLoadBalancerNodePorts=bool?:20 loadBalancerClass=string?:21 internalTrafficPolicy=string?:22 trafficDistribution=string?:23
ServicePort name=string:1 protocol=string:2 appProtocol=string?:6 port=int32:3 targetPort=IntOrString:4 nodePort=int32:5
ServiceStatus loadBalancer=LoadBalancerStatus:1 conditions=Condition[]:2
LoadBalancerStatus ingress=LoadBalancerIngress[]:1
LoadBalancerIngress ip=string:1 hostname=string:2 ipMode=string?:3 ports=PortStatus[]:4
PortStatus port=int32:1 protocol=string:2 error=string?:3
SessionAffinityConfig clientIP=ClientIPConfig?:1
ClientIPConfig timeoutSeconds=int32?:1
Condition type=string:1 status=string:2 observedGeneration=int64:3 lastTransitionTime=Time:4 reason=string:5 message=string:6
EndpointSlice metadata=ObjectMeta:1 addressType=string:4 endpoints=Endpoint[]:2 ports=EndpointPort[]:3
Endpoint addresses=string[]:1 conditions=EndpointConditions:2 hostname=string?:3 targetRef=ObjectReference?:4 nodeName=string?:6 zone=string?:7 hints=EndpointHints?:8
EndpointConditions ready=bool?:1 serving=bool?:2 terminating=bool?:3
EndpointHints forZones=ForZone[]:1 forNodes=ForNode[]:2
ForZone name=string:1
ForNode name=string:1
EndpointPort name=string?:1 protocol=string?:2 port=int32?:3 appProtocol=string?:4
ObjectReference kind=string:1 namespace=string:2 name=string:3 uid=string:4 apiVersion=string:5 resourceVersion=string:6 fieldPath=string:7
Node metadata=ObjectMeta:1 spec=NodeSpec:2 status=NodeStatus:3
NodeSpec podCIDR=string:1 podCIDRs=string[]:7 providerID=string:3 unschedulable=bool:4 taints=Taint[]:5
Taint key=string:1 value=string:2 effect=string:3 timeAdded=Time?:4
NodeStatus phase=string:3 conditions=NodeCondition[]:4 addresses=NodeAddress[]:5 volumesInUse=string[]:9
NodeAddress type=string:1 address=string:2
NodeCondition type=string:1 status=string:2 lastHeartbeatTime=Time:3 lastTransitionTime=Time:4 reason=string:5 message=string:6
ServiceCIDR metadata=ObjectMeta:1 spec=ServiceCIDRSpec:2 status=ServiceCIDRStatus:3
ServiceCIDRSpec cidrs=string[]:1
ServiceCIDRStatus conditions=Condition[]:1
Event metadata=ObjectMeta:1 eventTime=MicroTime:2 reportingController=string:4 reportingInstance=string:5 action=string:6 reason=string:7 regarding=ObjectReference:8 note=string:10 type=string:11
MicroTime seconds=int64:1 nanos=int32:2
TypeMeta apiVersion=string:1 kind=string:2
";

struct Field {
    name: &'static str,
    of: &'static str,
    number: u64,
    is_list: bool,
    is_pointer: bool,
}

fn fields(message: &str) -> Vec<Field> {
    let line = SCHEMA.lines().find_map(|line| line.strip_prefix(message)?.strip_prefix(' '));
    let field = |field: &'static str| {
        let (name, rest) = field.split_once('=').unwrap();
        let (of, number) = rest.split_once(':').unwrap();
        let (is_list, is_pointer) = (of.ends_with("[]"), of.ends_with('?'));
        Field { name, of: of.trim_end_matches(['[', ']', '?']), number: number.parse().unwrap(), is_list, is_pointer }
    };
    line.unwrap_or_else(|| panic!("no message {message}")).split(' ').map(field).collect()
}

/// Leaves out what the JSON of an API server does.
pub fn as_written(message: &str, value: &mut Value) {
    let Some(object) = value.as_object_mut() else { return };
    for field in fields(message) {
        let Some(value) = object.get_mut(field.name) else { continue };
        match value {
            Value::Array(items) if field.is_list => {
                items.iter_mut().filter(|item| item.is_object()).for_each(|item| as_written(field.of, item));
            }
            Value::Object(_) if field.of != "map" => as_written(field.of, value),
            _ => {}
        }
        let is_empty = match value {
            Value::String(text) => text.is_empty() && !field.is_pointer,
            Value::Array(items) => items.is_empty(),
            Value::Number(number) => number.as_i64() == Some(0) && !field.is_pointer && field.of != "IntOrString",
            Value::Bool(is_set) => !*is_set && !field.is_pointer,
            Value::Object(entries) => entries.is_empty() && field.of == "map",
            Value::Null => true,
        };
        if is_empty {
            object.remove(field.name);
        }
    }
}

/// Encodes an object or a list as an answer.
pub fn answer(value: &Value) -> Vec<u8> {
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let mut raw = Vec::new();
    match text("kind").strip_suffix("List") {
        Some(kind) => {
            bytes(&mut raw, 1, &message("ListMeta", &value["metadata"]));
            for item in value["items"].as_array().unwrap() {
                bytes(&mut raw, 2, &message(kind, item));
            }
        }
        None => raw = message(text("kind"), value),
    }
    unknown(text("apiVersion"), text("kind"), &raw)
}

/// Encodes a watch event.
pub fn frame(event: &Value) -> Vec<u8> {
    let mut object = Vec::new();
    bytes(&mut object, 1, &answer(&event["object"]));
    let mut encoded = Vec::new();
    bytes(&mut encoded, 1, event["type"].as_str().unwrap().as_bytes());
    bytes(&mut encoded, 2, &object);
    let mut frame = u32::try_from(encoded.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(encoded);
    frame
}

pub fn unknown(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    bytes(&mut type_meta, 1, api_version.as_bytes());
    bytes(&mut type_meta, 2, kind.as_bytes());
    let mut answer = b"k8s\0".to_vec();
    bytes(&mut answer, 1, &type_meta);
    bytes(&mut answer, 2, raw);
    bytes(&mut answer, 3, b"");
    bytes(&mut answer, 4, b"");
    answer
}

/// Decodes a request with an object.
pub fn request(body: &[u8]) -> Value {
    let body = body.strip_prefix(b"k8s\0").unwrap();
    let (type_meta, raw) = read(body).fold((Value::Null, body), |read, (number, value)| match number {
        1 => (decoded("TypeMeta", value), read.1),
        _ => (read.0, value),
    });
    let mut object = decoded(type_meta["kind"].as_str().unwrap(), raw);
    object["apiVersion"] = type_meta["apiVersion"].clone();
    object["kind"] = type_meta["kind"].clone();
    object
}

/// Decodes texts and messages, each at most once. Numbers are left out.
fn decoded(message: &str, bytes: &[u8]) -> Value {
    let known = fields(message);
    let texts = read(bytes).map(|(number, bytes)| {
        let field = known.iter().find(|field| field.number == number).unwrap();
        let value = match field.of {
            "string" => Value::from(std::str::from_utf8(bytes).unwrap()),
            of => decoded(of, bytes),
        };
        (field.name.to_owned(), value)
    });
    Value::Object(texts.collect())
}

/// Returns the fields that have a length.
fn read(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            if bytes.is_empty() {
                return None;
            }
            let key = prost::decode_length_delimiter(&mut bytes).unwrap();
            let length = prost::decode_length_delimiter(&mut bytes).unwrap();
            if key & 7 == 2 {
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                return Some((u64::try_from(key >> 3).unwrap(), value));
            }
        }
    })
}

pub fn message(name: &str, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sorted = fields(name);
    sorted.sort_by_key(|field| field.number);
    for field in sorted {
        match &value[field.name] {
            Value::Null if field.is_list || field.is_pointer => {}
            Value::Null => match field.of {
                "string" => bytes(&mut out, field.number, b""),
                "int32" | "int64" | "bool" => number(&mut out, field.number, 0),
                _ => {}
            },
            Value::Array(items) => items.iter().for_each(|item| one(&mut out, &field, item)),
            value => one(&mut out, &field, value),
        }
    }
    out
}

fn one(out: &mut Vec<u8>, field: &Field, value: &Value) {
    let mut inner = Vec::new();
    match (field.of, value) {
        ("map", value) => {
            for (key, value) in value.as_object().unwrap() {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                bytes(&mut entry, 2, value.as_str().unwrap().as_bytes());
                bytes(out, field.number, &entry);
            }
            return;
        }
        ("string", value) => inner = value.as_str().unwrap().as_bytes().to_vec(),
        ("int32" | "int64", value) => return number(out, field.number, value.as_i64().unwrap()),
        ("bool", value) => return number(out, field.number, i64::from(value.as_bool().unwrap())),
        ("Time", value) => {
            let at: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
            number(&mut inner, 1, at.as_second());
            number(&mut inner, 2, 0);
        }
        ("IntOrString", Value::String(text)) => {
            number(&mut inner, 1, 1);
            number(&mut inner, 2, 0);
            bytes(&mut inner, 3, text.as_bytes());
        }
        ("IntOrString", value) => {
            number(&mut inner, 1, 0);
            number(&mut inner, 2, value.as_i64().unwrap());
            bytes(&mut inner, 3, b"");
        }
        (of, value) => inner = message(of, value),
    }
    bytes(out, field.number, &inner);
}

fn number(out: &mut Vec<u8>, field: u64, value: i64) {
    varint(out, field << 3);
    varint(out, value.cast_unsigned());
}

pub fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
