//! The way from an empty axum project to a flame graph, as the guide has it.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use plimsoll_testkit::client::get;
use plimsoll_testkit::pprof::Profile;

/// The program with the four lines, each of which ends with its number.
const PROGRAM: &str = include_str!("project/program.rs");

/// The address in the guide. Another program may listen there, so the test uses a free port.
const ADDRESS: &str = "127.0.0.1:3000";

/// A program that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the commands of the guide.
fn commands(root: &Path) -> Vec<String> {
    let guide = fs::read_to_string(root.join("docs/guides/servers.md")).unwrap();
    let (_, rest) = guide.split_once("```sh\n").expect("commands");
    let (commands, _) = rest.split_once("```").unwrap();
    commands.lines().map(str::to_owned).collect()
}

/// Returns a command of cargo in the project. It shares the directory of built crates with this
/// test.
fn cargo(words: &[&str], project: &Path) -> Command {
    let mut command = Command::new(env!("CARGO"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
    command.args(words).current_dir(project);
    command.env("CARGO_TARGET_DIR", target.join("project"));
    command
}

fn run(words: &[&str], project: &Path) {
    let status = cargo(words, project).status().unwrap();
    assert!(status.success(), "cargo {words:?}");
}

/// Returns whether a line ends with one of the four numbers.
fn is_numbered(line: &str) -> bool {
    (1..=4).any(|number| line.ends_with(&format!(" // {number}")))
}

/// Creates the project that serves an empty router.
fn create(project: &Path, root: &Path) {
    let parent = project.parent().unwrap();
    let name = project.file_name().unwrap().to_str().unwrap();
    run(&["new", "--quiet", "--vcs", "none", name], parent);
    // With these versions, which the registry's cache has.
    let lock = root.join("examples/servers/Cargo.lock");
    fs::copy(lock, project.join("Cargo.lock")).unwrap();
    let features = "--features=http1,tokio";
    run(
        &["add", "axum", "--quiet", "--no-default-features", features],
        project,
    );
    let features = "--features=macros,net,rt-multi-thread";
    run(&["add", "tokio", "--quiet", features], project);
}

#[test]
fn three_commands_and_four_lines_lead_to_a_flame_graph() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap();
    let temporary = std::env::temp_dir().join(format!("plimsoll-project-{}", std::process::id()));
    fs::create_dir_all(&temporary).unwrap();
    let project: PathBuf = temporary.join("service");
    create(&project, &root);
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let program = PROGRAM.replace(ADDRESS, &port.to_string());
    assert_ne!(program, PROGRAM);
    let main = project.join("src/main.rs");
    let (numbered, others): (Vec<&str>, Vec<&str>) =
        program.lines().partition(|line| is_numbered(line));
    assert_eq!(numbered.len(), 4);
    fs::write(&main, others.join("\n")).unwrap();
    run(&["build", "--quiet"], &project);

    fs::write(&main, &program).unwrap();
    let commands = commands(&root);
    let [add, start, open] = &commands[..] else {
        panic!("three commands: {commands:?}");
    };
    let checkout = root.to_str().unwrap();
    let add = add.replace("../plimsoll/", &format!("{checkout}/"));
    let words: Vec<&str> = add.split(' ').collect();
    assert_eq!(words[0], "cargo");
    run(&words[1..], &project);
    // Built first, so that a failure is one of the compiler and not a missing server.
    run(&["build", "--quiet"], &project);
    let words: Vec<&str> = start.split(' ').collect();
    assert_eq!(words[0], "cargo");
    // `cargo run` becomes the program.
    let started = cargo(&words[1..], &project).env_remove("PLIMSOLL").spawn();
    let mut running = Running(started.unwrap());
    wait_until_served(port, &mut running);
    let address = open.split(' ').nth(1).expect("an address");
    let path = address
        .strip_prefix(&format!("http://{ADDRESS}"))
        .expect("the address of the program");
    opens_a_flame_graph(port, path);
    drop(running);
    fs::remove_dir_all(&temporary).unwrap();
}

fn wait_until_served(address: SocketAddr, running: &mut Running) {
    plimsoll_testkit::client::wait_for("the server", || {
        let ended = running.0.try_wait().unwrap();
        assert!(ended.is_none(), "cargo ended: {ended:?}");
        TcpStream::connect(address).is_ok()
    });
}

/// Reads the files of the page, and the profiles from which it draws its graphs.
fn opens_a_flame_graph(address: SocketAddr, path: &str) {
    let page = get(address, path);
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    for file in ["page.js", "page.css"] {
        assert_eq!(get(address, &format!("{path}{file}")).status, 200, "{file}");
    }
    // The heap of so small a program has few samples: of the first allocation of each thread, and of
    // some beyond. The stacks of all threads have the program's functions in any case.
    for (name, function) in [("heap", ""), ("goroutine", "service::main")] {
        let profile = get(address, &format!("/debug/pprof/{name}"));
        let profile = Profile::read(&profile.body);
        let frames = profile
            .sample
            .iter()
            .flat_map(|sample| profile.names(sample));
        let names: Vec<&str> = frames.collect();
        let found = names
            .iter()
            .any(|name| name.contains("::") && name.contains(function));
        assert!(found, "{name}: {names:?}");
    }
}
