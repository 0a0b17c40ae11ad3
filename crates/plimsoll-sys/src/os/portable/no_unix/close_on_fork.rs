//! Descriptors that are closed in the child of a fork, which this system does not have.
