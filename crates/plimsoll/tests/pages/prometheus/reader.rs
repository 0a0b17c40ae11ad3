//! The reader refuses malformed pages: otherwise it would not test the pages that it reads.

use plimsoll_testkit::exposition::{Format, parse};

const HISTOGRAM: &str = "# HELP h H.\n# TYPE h histogram\n\
    h_bucket{le=\"1.0\"} 1\nh_bucket{le=\"2.0\"} 3\nh_bucket{le=\"+Inf\"} 3\nh_sum 4.5\nh_count 3\n";

const SUMMARY: &str = "# HELP s S.\n# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_sum 2\ns_count 3\n";

#[test]
fn valid_pages_are_read() {
    let text = format!(
        "# HELP a_total A \\\\ \\n \".\n# TYPE a_total counter\na_total 7\n\
         # HELP b B.\n# TYPE b gauge\nb{{x=\"\\\"}},\\\\\\n\",y=\"\"}} -Inf\nb{{x=\"\"}} 1e-9\n{HISTOGRAM}{SUMMARY}"
    );
    let page = parse(&text, Format::Text).expect("it is right");
    assert_eq!(page.family("a_total").unwrap().help, "A \\ \n \".");
    assert_eq!(
        page.value("b", &[("x", "\"},\\\n"), ("y", "")]),
        f64::NEG_INFINITY
    );
    assert_eq!(page.value("h_bucket", &[("le", "2.0")]), 3.0);
    let text = format!(
        "# HELP a_bytes A \\\".\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total 7\n\
         # HELP c_total C.\n# TYPE c_total unknown\nc_total 1\n{HISTOGRAM}{SUMMARY}# EOF\n"
    );
    let page = parse(&text, Format::OpenMetrics).expect("it is right");
    assert_eq!(page.family("a_bytes").unwrap().unit, "bytes");
}

#[test]
fn invalid_pages_are_refused() {
    const GAUGE: &str = "# HELP g G.\n# TYPE g gauge\n";
    let gauge = |line: &str| format!("{GAUGE}{line}\n");
    let histogram = |from: &str, to: &str| {
        assert!(HISTOGRAM.contains(from), "{from}");
        HISTOGRAM.replace(from, to)
    };
    let both = [
        gauge("g{x=\"a\"b\"} 1"),
        gauge("g{x=\"a\\t\"} 1"),
        gauge("g{x=\"a} 1"),
        gauge("g{x=\"\",x=\"\"} 1"),
        gauge("g{x=\"\" y=\"\"} 1"),
        gauge("g{x=\"\",} 1"),
        gauge("g{} 1"),
        gauge("g{1x=\"\"} 1"),
        gauge("g{__x=\"\"} 1"),
        gauge("g{le=\"\"} 1"),
        gauge("g 1\ng 2"),
        gauge("g 1\n\ng{x=\"\"} 2"),
        gauge("g  1"),
        gauge("g 1 "),
        gauge("g"),
        gauge("g inf"),
        gauge("g 1,5"),
        gauge("h 1"),
        gauge("g_sum 1"),
        gauge("g 1\n# HELP g G."),
        gauge("g 1\n# HELP h H.\n# TYPE h gauge\nh 1\n# TYPE g gauge\ng{x=\"\"} 1"),
        GAUGE.into(),
        "g 1\n".into(),
        "# TYPE g gauge\ng 1\n".into(),
        "# HELP g G.\ng 1\n".into(),
        "# HELP g G.\n# TYPE g gauge\n# TYPE g gauge\ng 1\n".into(),
        "# HELP g G\\t.\n# TYPE g gauge\ng 1\n".into(),
        "# HELP G G.\n# TYPE G gauge\nG 1\n".into(),
        "# HELP g:a G.\n# TYPE g:a gauge\ng:a 1\n".into(),
        "# HELP g_total G.\n# TYPE g_total gauge\ng_total 1\n".into(),
        "# HELP g_count G.\n# TYPE g_count gauge\ng_count 1\n".into(),
        "# HELP g G.\n# TYPE g counter\ng 1\n".into(),
        "# HELP g_total G.\n# TYPE g_total counter\ng_total -1\n".into(),
        "# HELP g_total G.\n# TYPE g_total counter\ng_total NaN\n".into(),
        format!("{HISTOGRAM}# HELP h_sum H.\n# TYPE h_sum counter\nh_sum 1\n"),
        histogram("h_bucket{le=\"2.0\"} 3", "h_bucket{le=\"2.0\"} 0"),
        histogram("2.0", "0.5"),
        histogram("le=\"2.0\"", "le=\"1.0\""),
        histogram("h_count 3", "h_count 4"),
        histogram("h_count 3\n", ""),
        histogram("h_sum 4.5\n", ""),
        histogram("h_sum 4.5", "h_sum NaN"),
        histogram("h_bucket{le=\"+Inf\"} 3\n", ""),
        histogram("{le=\"2.0\"}", ""),
        SUMMARY.replace("s_sum 2\n", ""),
        SUMMARY.replace("{quantile=\"0.5\"}", ""),
    ];
    for page in &both {
        assert!(parse(page, Format::Text).is_err(), "{page}");
        let page = format!("{page}# EOF\n");
        assert!(parse(&page, Format::OpenMetrics).is_err(), "{page}");
    }
    for page in [
        gauge("g 1\n# EOF"),
        gauge("g 1").trim_end().into(),
        "# HELP g_x G.\n# TYPE g_x gauge\n# UNIT g_x x\ng_x 1\n".into(),
        "# HELP g G.\n# TYPE g unknown\ng 1\n".into(),
        "# HELP g G.\n# TYPE g counter\ng_total 1\n".into(),
    ] {
        assert!(parse(&page, Format::Text).is_err(), "{page}");
    }
    for page in [
        gauge("g 1"),
        gauge("g 1\n# EOF\n"),
        format!("# EOF\n{}# EOF\n", gauge("g 1")),
        "# HELP g \".\n# TYPE g gauge\ng 1\n# EOF\n".into(),
        "# HELP g_x G.\n# TYPE g_x gauge\n# UNIT g_x y\ng_x 1\n# EOF\n".into(),
        "# HELP gx G.\n# TYPE gx gauge\n# UNIT gx x\ngx 1\n# EOF\n".into(),
        "# HELP g_total G.\n# TYPE g_total counter\ng_total 1\n# EOF\n".into(),
        "# HELP g G.\n# TYPE g gauge\ng 1\n# HELP g_total G.\n# TYPE g_total unknown\ng_total 1\n\
         # HELP g_total_x G.\n# TYPE g counter\ng_total 1\n# EOF\n"
            .into(),
        // As Go's client writes this case.
        "# HELP g G.\n# TYPE g gauge\ng 1\n# HELP g G.\n# TYPE g counter\ng_total 1\n# EOF\n"
            .into(),
        "# HELP g_a G.\n# TYPE g_a counter\ng_a_total 1\n# HELP g_a_total G.\n# TYPE g_a_total unknown\ng_a_total 1\n# EOF\n"
            .into(),
    ] {
        assert!(parse(&page, Format::OpenMetrics).is_err(), "{page}");
    }
}
