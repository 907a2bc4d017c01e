//! `svclab`: a laboratory for service proxies.
