//! A comparison as JSON.

use serde_json::{Value, json};

use super::limit::Exceeded;
use super::{Basis, Comparison};

impl Comparison {
    /// Returns all figures, and all sites beyond their error.
    pub fn json(&self, exceeded: &[Exceeded]) -> Value {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|figure| {
                let (basis, error) = match figure.basis {
                    Basis::Exact => ("exact", Some(0)),
                    Basis::Within(error) => ("estimated", Some(error)),
                    Basis::Measured => ("measured", None),
                };
                json!({
                    "name": figure.name,
                    "unit": figure.unit.name(),
                    "before": figure.before,
                    "now": figure.now,
                    "difference": figure.difference(),
                    "basis": basis,
                    "error": error,
                    "certain": figure.is_certain(),
                })
            })
            .collect();
        let lists: Vec<Value> = self
            .lists
            .iter()
            .map(|list| {
                let sites: Vec<Value> = list
                    .changes
                    .iter()
                    .map(|change| {
                        json!({
                            "stack": change.path,
                            "before": change.before,
                            "now": change.now,
                            "difference": change.difference(),
                            "error": change.error,
                        })
                    })
                    .collect();
                json!({
                    "figure": list.figure,
                    "unit": list.unit.name(),
                    "uncertain": list.uncertain,
                    "sites": sites,
                })
            })
            .collect();
        let exceeded: Vec<Value> = exceeded
            .iter()
            .map(
                |limit| json!({"limit": limit.limit, "figure": limit.figure, "cause": limit.cause}),
            )
            .collect();
        json!({
            "version": 1,
            "comparison": {
                "before": self.before,
                "now": self.now,
                "notes": self.notes,
                "figures": figures,
                "lists": lists,
                "exceeded": exceeded,
            },
        })
    }
}
