//! The start of each service.

/// Starts Plimsoll, and returns the service's port, the last argument. A line on standard input switches Plimsoll off; the
/// end of the input ends the process.
pub fn start() -> u16 {
    let plimsoll = plimsoll::start();
    std::thread::spawn(move || follow(plimsoll));
    let port = std::env::args().next_back().and_then(|word| word.parse().ok());
    port.expect("the last argument is a port")
}

/// Prints, now and after each line, whether Plimsoll is on, and whether it counts allocations.
fn follow(mut plimsoll: plimsoll::Plimsoll) {
    let mut lines = std::io::stdin().lines();
    loop {
        let is_counted = plimsoll::heap_stats().mallocs > 0;
        println!("{} {is_counted}", plimsoll.is_on());
        if lines.next().is_none() {
            std::process::exit(0);
        }
        plimsoll.switch_off();
    }
}
