//! Threads of a Rust program with known waits, for the tests of `plimsoll attach`.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Barrier, Condvar, Mutex, RwLock};
use std::time::Duration;

static MUTEX: Mutex<u64> = Mutex::new(0);
static OTHER: Mutex<u64> = Mutex::new(0);
static CONDITION: Condvar = Condvar::new();
static RWLOCK: RwLock<u64> = RwLock::new(0);

#[inline(never)]
fn wait_for_mutex() -> u64 {
    *MUTEX.lock().unwrap()
}

#[inline(never)]
fn wait_for_condition() -> u64 {
    let mut number = OTHER.lock().unwrap();
    while *number == 0 {
        number = CONDITION.wait(number).unwrap();
    }
    *number
}

#[inline(never)]
fn wait_to_read() -> u64 {
    *RWLOCK.read().unwrap()
}

#[inline(never)]
fn wait_to_receive(receiver: &Receiver<u64>) -> u64 {
    receiver.recv().unwrap() + 1
}

#[inline(never)]
fn wait_at_barrier(barrier: &Barrier) -> u64 {
    u64::from(barrier.wait().is_leader())
}

#[inline(never)]
fn wait_to_accept(listener: &TcpListener) -> u64 {
    u64::from(listener.accept().is_ok())
}

#[inline(never)]
fn wait_for_packet(socket: &UdpSocket) -> u64 {
    socket.recv(&mut [0; 64]).unwrap() as u64
}

#[inline(never)]
fn wait_in_sleep() -> u64 {
    std::thread::sleep(Duration::from_secs(100_000));
    1
}

#[inline(never)]
fn wait_in_park() -> u64 {
    std::thread::park();
    1
}

fn start(name: &str, wait: impl FnOnce() -> u64 + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into());
    let run = move || println!("{}", wait());
    thread.spawn(run).unwrap();
}

#[inline(never)]
fn wait_for_end() {
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
}

fn main() {
    let (_sender, receiver) = mpsc::channel();
    let _held = MUTEX.lock().unwrap();
    let _written = RWLOCK.write().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    start("mutex", wait_for_mutex);
    start("condition", wait_for_condition);
    start("rwlock", wait_to_read);
    start("receive", move || wait_to_receive(&receiver));
    start("barrier", || wait_at_barrier(&Barrier::new(2)));
    start("accept", move || wait_to_accept(&listener));
    start("packet", move || wait_for_packet(&socket));
    start("sleep", wait_in_sleep);
    start("park", wait_in_park);
    println!("ready");
    wait_for_end();
}
