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
        "memory_limit=101%,dump_on=sigquit+off,out_on=exit,leak_age=10,long_poll=10,task_times=1,go_names=yes,thread_signal=9,block_rate=1,mutex_fraction=-1,htp=1,heap_rate=often,stack_depth=9999,http,out=,http=,http_hosts=,http_hosts=a:80,http_hosts=a+b c,ledger=x,heap_rate=4k",
    );
    assert_eq!(config.heap_rate, Some(4096));
    assert_eq!(config.http, None, "`htp` may have been meant to protect it");
    let expected = vec![
        "`memory_limit=101%`: the value is not a share",
        "`dump_on=sigquit+off`: the value is not one of",
        "`out_on=exit`: the value is not one of",
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
    assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
    for (complaint, expected) in complaints.iter().zip(expected) {
        assert!(complaint.contains(expected), "{complaint}");
        assert!(complaint.starts_with("PLIMSOLL"), "{complaint}");
    }
}

#[test]
fn off_needs_no_value_and_other_words_stay_known() {
    let (config, complaints) = read("http=127.0.0.1:1,off");
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(config.is_off && config.http.is_some());
    assert!(!read("history=off,http=off").0.is_off);
    let (config, complaints) = read("off=1");
    assert!(!config.is_off);
    let expected = "PLIMSOLL: `off` takes no value and has no effect with one";
    assert!(complaints[0].starts_with(expected), "{complaints:?}");
}

/// The server would start without the protection that was meant.
#[test]
fn no_pages_are_served_with_a_word_that_may_have_been_meant_to_protect_them() {
    for text in [
        "http=127.0.0.1:1,http_tokn=s3cr3t",
        "http_tokn=s3cr3t,http=127.0.0.1:1",
        "HTTP_TOKEN=s3cr3t",
        "http_token",
        "token=s3cr3t",
        "http_hots=a",
        "http_tokens=file:/run/s3cr3t",
        // The second part of a token with a comma.
        "http_token=x,s3cr3t",
        "http_token=x,s3cr3t=s3cr3t",
        "http_token=x,s3cr3t,s3cr3t",
        "http-token=s3cr3t,heap_rate=1",
    ] {
        let (config, complaints) = read(text);
        assert_eq!(config.http, None, "{text}");
        for complaint in complaints {
            assert!(complaint.ends_with(environment::NOT_SERVED), "{complaint}");
            assert!(!complaint.contains("s3cr3t"), "{complaint}");
            assert!(!complaint.contains('\n'), "{complaint}");
        }
    }
    // Words that have nothing to do with pages have no effect on them.
    for text in [
        "heap_rate=x",
        "heap_rate",
        "help",
        "http_hosts=a:80",
        "http",
    ] {
        assert!(read(text).0.http.is_some(), "{text}");
    }
    // Where no pages are requested, the complaint does not mention them.
    let (_, complaints) = config().with_environment("colour=red");
    assert!(!complaints[0].contains("pages"), "{complaints:?}");
    let (config, complaints) = config().http("127.0.0.1:1").without_environment();
    assert_eq!(config.http, None);
    assert!(complaints[0].ends_with(environment::NOT_SERVED));
}

#[test]
fn every_word_is_in_the_list() {
    for word in plimsoll_settings::all().map(|setting| setting.name) {
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
