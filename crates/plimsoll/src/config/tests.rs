use super::*;

fn read(text: &str) -> (Config, Vec<String>) {
    config()
        .http("from code:1")
        .heap_rate(7)
        .with_environment(text)
}

#[test]
fn the_environment_wins_over_the_code() {
    let (config, complaints) = read(
        "http=127.0.0.1:6060, heap_rate=64k,block_rate=1ms,mutex_fraction=100,stack_depth=32,out=/tmp/x",
    );
    assert!(complaints.is_empty(), "{complaints:?}");
    assert_eq!(config.http.as_deref(), Some("127.0.0.1:6060"));
    assert_eq!(
        (config.heap_rate, config.stack_depth),
        (Some(64 << 10), Some(32))
    );
    assert_eq!(
        (config.block_rate, config.mutex_fraction),
        (Some(Duration::from_millis(1)), Some(100))
    );
    assert_eq!(config.out, Some("/tmp/x".into()));
    assert_eq!(read("http=off").0.http, None);
    let hosts = read("http_hosts=app+Debug.Example.com").0.http_hosts;
    assert_eq!(hosts, ["app", "Debug.Example.com"]);
    assert_eq!(read("").0.http.as_deref(), Some("from code:1"));
}

#[test]
fn bad_settings_are_named_and_the_others_are_used() {
    let (config, complaints) = read(
        "memory_limit=101%,dump_on=sigquit+off,leak_age=10,long_poll=10,task_times=1,go_names=yes,thread_signal=9,block_rate=1,mutex_fraction=-1,htp=1,heap_rate=often,stack_depth=9999,http,out=,http=,http_hosts=,http_hosts=a:80,http_hosts=a+b c,ledger=x,heap_rate=4k",
    );
    assert_eq!(config.heap_rate, Some(4096));
    assert_eq!(config.http.as_deref(), Some("from code:1"));
    let mut expected = vec![
        "`memory_limit=101%`: the value is not a share",
        "`dump_on=sigquit+off`: the value is not one of",
        "`leak_age=10`: the value is not a length of time",
        "`long_poll=10`: the value is not a length of time",
        "`task_times=1`: the value is neither on nor off",
        "`go_names=yes`: the value is neither on nor off",
        "`thread_signal=9`: the value is not the number",
        "`block_rate=1`: the value is not a length of time",
        "`mutex_fraction=-1`: the value is not a whole number",
        "no setting `htp`",
        "`heap_rate=often`: the value is not a number of bytes",
        "`stack_depth=9999`",
        "`http` has no value",
        "`out=`: the value is empty; give a directory",
        "`http=`: the value is empty",
        "`http_hosts=`: the value contains no host",
        "`http_hosts=a:80`: the value has a port",
        "`http_hosts=a+b c`: the value is not a host name",
        "`ledger=x`",
    ];
    if !cfg!(feature = "http") {
        // Only the server examines names.
        expected.retain(|text| !text.contains("http_hosts=a"));
    }
    assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
    for (complaint, expected) in complaints.iter().zip(expected) {
        assert!(complaint.contains(expected), "{complaint}");
        assert!(complaint.starts_with("PLIMSOLL"), "{complaint}");
    }
}

#[test]
fn every_word_is_in_the_list() {
    for word in words::WORDS.map(|word| word.name) {
        let (_, complaints) = read(&format!("{word}=\u{1}"));
        assert!(
            complaints
                .iter()
                .all(|complaint| !complaint.contains("no setting")),
            "{word}"
        );
    }
}

#[test]
fn hostile_text_is_survived() {
    for text in [
        "=",
        ",,,=,=,",
        "a=b=c",
        "\u{0}",
        "heap_rate=\u{ffff}",
        &"x".repeat(100_000),
        &"http=,".repeat(10_000),
    ] {
        let _ = read(text);
    }
}
