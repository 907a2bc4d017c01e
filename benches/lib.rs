//! Shared shapes for the benchmarks: clusters of a given size.
