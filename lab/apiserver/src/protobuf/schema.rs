//! What a table of [`super::messages`] says of a message.

/// The type of a field's value.
#[derive(Debug, Clone)]
pub(super) enum FieldType {
    String,
    Bool,
    /// `int32` and `int64`, which have the same encoding.
    Int,
    /// `meta.v1.Time`: whole seconds.
    Time,
    /// `meta.v1.MicroTime`.
    MicroTime,
    /// `api.resource.Quantity`.
    Quantity,
    /// `util.intstr.IntOrString`.
    IntOrString,
    /// `meta.v1.FieldsV1`: JSON as bytes.
    Raw,
    Message(&'static [Field]),
}

/// How often a field occurs. Kubernetes writes a plain field of Go always, and a pointer only if it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldForm {
    Plain,
    /// Plain, with the parent's JSON object as its own.
    Inline,
    Pointer,
    List,
    Map,
}

#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The name in JSON.
    pub(super) name: &'static str,
    pub(super) form: FieldForm,
    pub(super) of: &'static FieldType,
}

/// Declares messages: `number name Type` for a plain field, `(Type)` for a pointer, `[Type]` for a list, `{Type}` for a
/// map from strings; `number inline Type` for a message whose fields are its parent's in JSON.
macro_rules! messages {
    ($($message:ident { $($number:literal $name:ident $form:tt),* $(,)? })*) => {
        $(pub(in crate::protobuf) static $message: FieldType =
            FieldType::Message(&[$(field!($number $name $form)),*]);)*
    };
}

macro_rules! field {
    ($number:literal inline $of:ident) => { field!(@ $number, "", Inline, $of) };
    ($number:literal $name:ident ($of:ident)) => { field!(@ $number, stringify!($name), Pointer, $of) };
    ($number:literal $name:ident [$of:ident]) => { field!(@ $number, stringify!($name), List, $of) };
    ($number:literal $name:ident {$of:ident}) => { field!(@ $number, stringify!($name), Map, $of) };
    ($number:literal $name:ident $of:ident) => { field!(@ $number, stringify!($name), Plain, $of) };
    (@ $number:literal, $name:expr, $form:ident, $of:ident) => {
        Field { number: $number, name: $name, form: FieldForm::$form, of: &$of }
    };
}

pub(super) use {field, messages};
