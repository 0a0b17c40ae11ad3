//! The files of `contrib` for fleets of programs, with the live examples: Prometheus and its alerts,
//! the dashboard of Grafana, the scrapers Parca and Grafana Alloy, and the deployment in Kubernetes.
//!
//! Prometheus is the real one. Parca, Alloy, Grafana and Kubernetes are not run: their requests are
//! fixtures, as their documentation and sources state them.

mod alloy;
mod contrib;
mod dashboard;
// The longest test is in this module. Tests begin in the order of their names.
mod default_scrapes;
mod discovery;
mod rules;
#[path = "../running/mod.rs"]
mod running;
mod scrapers;
mod series;
mod service;

/// The program with tracked tasks, in `service`, is this process.
#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
