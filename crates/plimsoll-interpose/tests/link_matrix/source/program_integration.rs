#[test]
fn an_integration_test_is_interposed() {
    program::begin();
    program::contend(|| program::LOCK.lock().unwrap());
    assert!(program::is_right(), "{}", program::report());
}
