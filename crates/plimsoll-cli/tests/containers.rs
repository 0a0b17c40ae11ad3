//! The files in `contrib/container` and `contrib/kubernetes`: each is valid, its command lines are those of
//! the command, and the entry point and the sidecar work together. No container runtime is needed.

mod command;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use command::{Directory, file_of_command};
use plimsoll_args::args::Arguments;
use yaml_rust2::{Yaml, YamlLoader};

const IMAGE: &str = "container/Dockerfile";
const EXAMPLE: &str = "container/example.Dockerfile";
const POD: &str = "kubernetes/postmortem.yaml";

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    fs::read_to_string(path.join(file)).unwrap()
}

/// Returns the instructions of a Dockerfile, with their arguments.
fn instructions(file: &str) -> Vec<(String, String)> {
    let text = read(file);
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            assert!(!line.ends_with('\\'), "{line}");
            let (name, arguments) = line.split_once(' ').unwrap();
            (name.to_owned(), arguments.trim().to_owned())
        })
        .collect()
}

/// Returns the arguments of an instruction in the form that runs no shell.
fn words(file: &str, instruction: &str) -> Vec<String> {
    let instructions = instructions(file);
    let mut found = instructions.iter().filter(|(name, _)| name == instruction);
    let (_, arguments) = found.next().unwrap();
    assert!(found.next().is_none(), "{file}: {instruction}");
    serde_json::from_str(arguments).unwrap()
}

/// Returns the command line with which an image starts.
fn command_line(file: &str) -> Vec<String> {
    [words(file, "ENTRYPOINT"), words(file, "CMD")].concat()
}

fn accepts(command_line: &[String]) {
    assert_eq!(Path::new(&command_line[0]).file_name().unwrap(), "plimsoll");
    if let Err(error) = Arguments::try_parse_from(command_line) {
        assert!(!error.use_stderr(), "{command_line:?}: {error}");
    }
}

#[test]
fn the_images_start_the_command() {
    for file in [IMAGE, EXAMPLE] {
        let known = [
            "FROM",
            "WORKDIR",
            "COPY",
            "RUN",
            "USER",
            "ENTRYPOINT",
            "CMD",
        ];
        for (name, _) in instructions(file) {
            assert!(known.contains(&&*name), "{file}: {name}");
        }
        accepts(&command_line(file));
    }
    // The stage and the package exist.
    let image = instructions(IMAGE);
    let has = |name: &str, end: &str| {
        let mut all = image.iter();
        assert!(
            all.any(|(of, text)| of == name && text.ends_with(end)),
            "{name} {end}"
        );
    };
    has("FROM", " AS build");
    has(
        "COPY",
        "--from=build /plimsoll/target/release/plimsoll /plimsoll",
    );
    has(
        "RUN",
        "--package plimsoll-cli --features tls --bin plimsoll",
    );
}

/// Returns the list of strings under a key.
fn strings(of: &Yaml, key: &str) -> Vec<String> {
    let list = of[key].as_vec().unwrap_or_else(|| panic!("{key}"));
    list.iter()
        .map(|text| text.as_str().unwrap().to_owned())
        .collect()
}

fn pod() -> Yaml {
    let mut documents = YamlLoader::load_from_str(&read(POD)).unwrap();
    assert_eq!(documents.len(), 1);
    documents.remove(0)["spec"]["template"]["spec"].clone()
}

#[test]
fn the_containers_of_the_pod_share_the_volume_and_the_user() {
    let pod = pod();
    let volume = pod["volumes"][0]["name"].as_str().unwrap();
    assert!(!pod["volumes"][0]["emptyDir"].is_badvalue());
    assert_eq!(pod["securityContext"]["runAsUser"].as_i64(), Some(1000));
    let sidecar = &pod["initContainers"][0];
    assert_eq!(sidecar["restartPolicy"].as_str(), Some("Always"));
    let service = &pod["containers"][0];
    assert_eq!(sidecar["image"], service["image"]);
    for container in [sidecar, service] {
        let mount = &container["volumeMounts"][0];
        assert_eq!(mount["name"].as_str(), Some(volume));
        let path = mount["mountPath"].as_str().unwrap();
        let line = strings(container, "command");
        accepts(&line);
        assert!(line.iter().any(|word| word.ends_with(path)), "{line:?}");
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"].as_bool(), Some(false));
        assert!(security["runAsUser"].is_badvalue());
    }
    assert_eq!(strings(service, "command"), command_line(EXAMPLE));
}

/// Replaces the program, the directory and the destination of a command line by those of the test.
fn run(line: &[String], replaced: &[(&str, &str)]) -> Command {
    let mut command = Command::new(file_of_command());
    for word in &line[1..] {
        let mut word = word.clone();
        for (from, to) in replaced {
            word = word.replace(from, to);
        }
        command.arg(word);
    }
    command
}

#[test]
fn the_sidecar_ships_the_file_of_the_killed_service() {
    let directory = Directory::new("containers");
    let make = |name: &str| -> PathBuf {
        let path = directory.0.join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (volume, to) = (make("volume"), make("to"));
    // The service.
    let mut line = command_line(EXAMPLE);
    assert_eq!(line.pop().unwrap(), "service");
    line.extend(["/bin/sh", "-c", "kill -KILL $$"].map(str::to_owned));
    let replaced = [("/var/plimsoll", volume.to_str().unwrap())];
    let output = run(&line, &replaced).output().unwrap();
    assert!(!output.status.success());
    // The container starts again, and ends well.
    line.pop();
    line.push("exit 0".to_owned());
    let output = run(&line, &replaced).output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let line = strings(&pod()["initContainers"][0], "command");
    let replaced = [
        ("/var/plimsoll", volume.to_str().unwrap()),
        (
            "http://collector.monitoring:8080/postmortem/service",
            to.to_str().unwrap(),
        ),
        ("--drain", "--once"),
    ];
    let output = run(&line, &replaced).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let names = fs::read_dir(&to).unwrap();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for end in [".postmortem", ".summary.txt", ".heap.pb.gz"] {
        assert!(names.iter().any(|name| name.ends_with(end)), "{names:?}");
    }
}
