//! The tables of Kubernetes' messages.
//!
//! Numbers, names and pointers are those of Kubernetes 1.37 (`types.go` of k8s.io/api and k8s.io/apimachinery, whose tags
//! `generated.proto` is made from). A later release adds fields; no release changes a number.

#![allow(non_upper_case_globals, reason = "the names are those of Kubernetes' types")]

mod container;
mod core;
mod groups;
mod meta;
mod pod;
mod volume;

use super::schema::{Field, FieldForm, FieldType, field, messages};
pub(super) use container::*;
pub(super) use core::*;
pub(super) use groups::*;
pub(super) use meta::*;
pub(super) use pod::*;
pub(super) use volume::*;

static String: FieldType = FieldType::String;
static Bool: FieldType = FieldType::Bool;
static Int: FieldType = FieldType::Int;
static Time: FieldType = FieldType::Time;
static MicroTime: FieldType = FieldType::MicroTime;
static Quantity: FieldType = FieldType::Quantity;
static IntOrString: FieldType = FieldType::IntOrString;
static Raw: FieldType = FieldType::Raw;
