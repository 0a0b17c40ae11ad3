//! The block and mutex profiles, compared with known contention on locks that do not use Plimsoll.
#![cfg(feature = "interpose")]

#[path = "contention/conditions.rs"]
mod conditions;
#[path = "contention/depths.rs"]
mod depths;
#[path = "contention/inlined.rs"]
mod inlined;
#[path = "contention/locks.rs"]
mod locks;
#[path = "contention/own_locks.rs"]
mod own_locks;
#[path = "contention/rates.rs"]
mod rates;
#[path = "contention/records.rs"]
mod records;
#[path = "contention/roles.rs"]
mod roles;
#[path = "contention/scenarios.rs"]
mod scenarios;
#[path = "contention/scene.rs"]
mod scene;
#[path = "contention/stripped.rs"]
mod stripped;
#[path = "contention/sums.rs"]
mod sums;
#[path = "contention/text.rs"]
mod text;
