//! The list of processes of `plimsoll run --http --children`.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::port::Port;
use crate::scene::{Scene, run};
use plimsoll_testkit::client::{Answer, get, wait_for};
use plimsoll_testkit::hostile;

/// A program under `plimsoll run --http --children`. It ends with its input.
struct Program {
    child: Child,
    port: Port,
}

impl Program {
    fn start(program: &Path) -> Self {
        let port = Port::new();
        let address = port.number.to_string();
        let child = run(&["--quiet", "--children", "--http", &address], program, &[])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child, port }
    }

    fn get(&self, target: &str) -> Answer {
        get(self.port.address(), target)
    }

    /// Waits until the list has a number of processes. Returns each id with its address.
    fn wait_for_list(&self, count: usize) -> Vec<(u32, SocketAddr)> {
        let mut list = Vec::new();
        wait_for("the list", || {
            if TcpStream::connect(self.port.address()).is_err() {
                return false;
            }
            let answer = self.get("/");
            list = answer.text().lines().map(listed).collect();
            list.len() == count
        });
        list
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Reads a line of the list.
fn listed(line: &str) -> (u32, SocketAddr) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [process, _, url] = words[..] else {
        panic!("{line}");
    };
    let rest = url.strip_prefix("http://").unwrap();
    let address = rest.strip_suffix("/debug/pprof/").unwrap();
    (process.parse().unwrap(), address.parse().unwrap())
}

#[test]
fn hostile_clients_of_the_list_are_refused_and_keep_out_no_other() {
    let scene = Scene::new("list-hostile");
    let source = "#include <unistd.h>\nint main() { char byte; return read(0, &byte, 1) != 0; }";
    let program = Program::start(&scene.c("waits", source));
    program.wait_for_list(1);
    hostile::attack(program.port.address(), "/", 200);
    hostile::attack(program.port.address(), "/debug/pprof/heap?debug=1", 307);
    program.end();
}

/// A worker of a server that runs as another user, and that an attacker controls. It serves at a port of
/// its own, and notes that port as the master's, by every name that a lenient reader would take for it.
const HIJACKER: &str = r#"
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[4096];

static void find_directory(void) {
    static char all[1 << 20];
    int file = open("/proc/self/environ", O_RDONLY);
    ssize_t length = read(file, all, sizeof all - 1);
    for (char *at = all; at < all + length; at += strlen(at) + 1)
        if (!strncmp(at, "PLIMSOLL_RUN_TO=", 16)) strcpy(directory, at + 16);
    close(file);
}

static void note(const char *form, int process, int port) {
    char name[64], path[8192];
    sprintf(name, form, process);
    sprintf(path, "%s/%s.http", directory, name);
    // The sticky bit keeps the files of others. Those of the same user are replaced.
    unlink(path);
    FILE *file = fopen(path, "w");
    if (!file) return;
    fprintf(file, "127.0.0.1:%d\nevil\n", port);
    fclose(file);
}

int main(void) {
    char byte;
    int master = getpid(), ready[2];
    find_directory();
    pipe(ready);
    int worker = fork();
    if (!worker) {
        if (!geteuid() && setresuid(65534, 65534, 65534)) return 1;
        int server = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof at;
        bind(server, (struct sockaddr *)&at, length);
        listen(server, 100);
        getsockname(server, (struct sockaddr *)&at, &length);
        int port = ntohs(at.sin_port);
        const char *forms[] = {"0%d", "00%d", "000%d", "+%d", "+0%d", "%d"};
        for (int i = 0; i < 6; i++) note(forms[i], master, port);
        // A process that does not belong to this run.
        note("%d", 1, port);
        printf("%d %d %d\n", master, getpid(), port);
        fflush(stdout);
        close(ready[1]);
        read(0, &byte, 1);
        _exit(0);
    }
    close(ready[1]);
    read(ready[0], &byte, 1);
    read(0, &byte, 1);
    waitpid(worker, 0, 0);
    return 0;
}
"#;

#[test]
fn a_worker_cannot_redirect_the_pages_of_its_master_to_itself() {
    let scene = Scene::new("list-hijack");
    let mut program = Program::start(&scene.c("hijacker", HIJACKER));
    let mut line = String::new();
    let out = program.child.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut line).unwrap();
    let numbers: Vec<u32> = line
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    let [master, worker, evil] = numbers[..] else {
        panic!("{line}");
    };
    // A worker of the same user can remove its master's note, and only that.
    // SAFETY: the call has no arguments.
    let is_other_user = unsafe { libc::geteuid() } == 0;
    let processes = if is_other_user {
        vec![master, worker]
    } else {
        vec![worker]
    };
    let list = program.wait_for_list(processes.len());
    let listed: Vec<u32> = list.iter().map(|(process, _)| *process).collect();
    assert_eq!(listed, processes);
    assert!(list.iter().all(|(_, at)| u32::from(at.port()) != evil));
    let answer = program.get("/debug/pprof/heap");
    let location = answer.header("location").map(str::to_owned);
    if is_other_user {
        let own = format!("http://{}/debug/pprof/heap", list[0].1);
        assert_eq!((answer.status, location), (307, Some(own)));
    } else {
        assert_eq!((answer.status, location), (404, None));
    }
    program.end();
}
