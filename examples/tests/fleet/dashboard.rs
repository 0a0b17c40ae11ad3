//! The structure of the dashboard. Its queries are in `series`.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::contrib::{list, string, text};

pub const DASHBOARD: &str = "contrib/grafana/plimsoll.json";

pub fn read() -> Value {
    serde_json::from_str(&text(DASHBOARD)).expect("JSON")
}

/// Returns the panels with queries, without the headings.
pub fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = list(&dashboard["panels"]).iter();
    panels.filter(|panel| panel["type"] != "row").collect()
}

/// Calls a function for each data source that is named anywhere.
fn each_source(value: &Value, found: &mut impl FnMut(&Value)) {
    match value {
        Value::Object(entries) => entries.iter().for_each(|(key, value)| {
            if key == "datasource" {
                found(value);
            }
            each_source(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| each_source(item, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_can_be_imported_anywhere() {
    let dashboard = read();
    // The number belongs to the Grafana that stores it.
    assert_eq!(dashboard["id"], Value::Null);
    let mut count = 0;
    each_source(&dashboard, &mut |source| {
        count += 1;
        let expected = json!({ "type": "prometheus", "uid": "${datasource}" });
        assert_eq!(*source, expected);
    });
    assert!(count > panels(&dashboard).len());
    let variables = list(&dashboard["templating"]["list"]).iter();
    let variables: Vec<_> = variables.map(|of| string(&of["name"])).collect();
    assert_eq!(variables, ["datasource", "job", "instance"]);
}

#[test]
fn each_panel_is_described_and_overlaps_no_other() {
    let dashboard = read();
    let mut ids = HashSet::new();
    let mut cells = HashSet::new();
    for panel in list(&dashboard["panels"]) {
        let title = string(&panel["title"]);
        assert!(
            !title.is_empty() && ids.insert(panel["id"].as_u64()),
            "{title}"
        );
        let position = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        let (x, y) = (position("x"), position("y"));
        assert!(x + position("w") <= 24, "{title} is outside");
        for row in y..y + position("h") {
            for column in x..x + position("w") {
                assert!(
                    cells.insert((column, row)),
                    "{title} overlaps another panel"
                );
            }
        }
    }
    for panel in panels(&dashboard) {
        let title = string(&panel["title"]);
        assert!(string(&panel["description"]).ends_with('.'), "{title}");
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        assert!(!string(unit).is_empty(), "{title}");
        assert!(panel["datasource"].is_object(), "{title}");
        let targets = list(&panel["targets"]);
        let names: HashSet<_> = targets.iter().map(|of| string(&of["refId"])).collect();
        assert!(!names.is_empty() && names.len() == targets.len(), "{title}");
        for target in targets {
            let query = string(&target["expr"]);
            // A selector without the variables would show programs that are not selected.
            let selectors = query.matches("plimsoll_").count();
            let selection = "{job=~\"$job\",instance=~\"$instance\"}";
            assert_eq!(query.matches(selection).count(), selectors, "{query}");
        }
    }
}
