//! The integrations with CI services in `contrib`: their files are valid, and their scripts find one
//! extra allocation. `PLIMSOLL_ACTIONLINT` names the program actionlint; without that variable, it is
//! searched in the path, and its checks are skipped if it is missing.

mod command;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use command::Directory;
use yaml_rust2::{Yaml, YamlLoader};

const ACTION: &str = "github-action/action.yml";
const EXAMPLE: &str = "github-action/example.yml";
const GITLAB: &str = "gitlab/plimsoll.yml";

fn contrib() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib")
}

fn parse(file: &str) -> Yaml {
    let text = fs::read_to_string(contrib().join(file)).unwrap();
    let mut documents = YamlLoader::load_from_str(&text).unwrap();
    assert_eq!(documents.len(), 1, "{file}");
    documents.remove(0)
}

/// Returns the value of a key with which the file has a string.
fn text<'a>(of: &'a Yaml, key: &str) -> &'a str {
    of[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} in {of:?}"))
}

/// A program of a base and of a change, which makes one allocation more for each line.
struct Scene {
    directory: Directory,
}

impl Scene {
    fn new(test: &str) -> Self {
        let directory = Directory::new(test);
        Self { directory }
    }

    /// Writes the source and the makefile to a directory.
    fn source(&self, name: &str, blocks: usize) -> PathBuf {
        let path = self.directory.0.join(name);
        fs::create_dir_all(&path).unwrap();
        let source = format!(
            "#include <stdlib.h>\n\
             __attribute__((noinline)) char *copy(void) {{ char *block = malloc(100); return block + 1 - 1; }}\n\
             int main() {{ for (int i = 0; i < {blocks}; i++) copy()[0] = 1; return 0; }}\n"
        );
        fs::write(path.join("program.c"), source).unwrap();
        path
    }

    fn build(&self, name: &str, blocks: usize) -> PathBuf {
        let path = self.source(name, blocks);
        let shell = &mut Command::new("sh");
        let built = shell.args(["-c", BUILD]).current_dir(&path).status();
        assert!(built.unwrap().success());
        path
    }

    /// Runs a script with the command in the path.
    fn run(&self, shell: &[&str], script: &str, variables: &BTreeMap<String, String>) -> Output {
        let command = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        Command::new(shell[0])
            .args(&shell[1..])
            .arg(script)
            .current_dir(&self.directory.0)
            .env("PATH", format!("{}:{path}", command.display()))
            .envs(variables)
            .output()
            .unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.directory.0.join(name)).unwrap_or_default()
    }
}

const BUILD: &str = "cc -g -O1 -fno-builtin -w -o program program.c";

/// Runs the steps of the action as the service does: in bash, which stops at the first failure. Returns
/// the status and the errors of the step that failed, or 0.
fn act(scene: &Scene, inputs: &[(&str, &str)]) -> (i32, String) {
    let action = parse(ACTION);
    let files = ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"];
    let steps = action["runs"]["steps"].as_vec().unwrap();
    for step in steps {
        assert_eq!(text(step, "shell"), "bash");
        let mut variables = BTreeMap::new();
        for (name, value) in step["env"].as_hash().unwrap() {
            let value = value.as_str().unwrap();
            let input = value.strip_prefix("${{ inputs.").unwrap();
            let input = input.strip_suffix(" }}").unwrap();
            let declared = &action["inputs"][input];
            assert!(!declared.is_badvalue(), "{input}");
            let given = inputs.iter().find(|(name, _)| *name == input);
            let value = given.map_or_else(|| text(declared, "default"), |(_, value)| value);
            variables.insert(name.as_str().unwrap().to_owned(), value.to_owned());
        }
        for file in files {
            variables.insert(file.to_owned(), scene.directory.path(file));
        }
        let shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"];
        let script = text(step, "run");
        // Inputs in the text of a script would be executed.
        assert!(!script.contains("${{"), "{script}");
        let output = scene.run(&shell, script, &variables);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return (output.status.code().unwrap(), errors);
        }
    }
    (0, String::new())
}

#[test]
fn the_action_fails_at_one_extra_allocation() {
    let scene = Scene::new("contrib-action");
    for (name, blocks) in [("base", 100), ("new dir", 101), ("same", 100)] {
        scene.build(name, blocks);
    }
    let base = ("base-command", "base/program 'an argument'");
    let same = ("command", "same/program 'an argument'");
    let more = ("command", "'new dir/program' 'an argument'");
    let (status, errors) = act(&scene, &[base, same]);
    assert_eq!(status, 0, "{errors}");
    assert!(scene.read("GITHUB_OUTPUT").contains("exceeded=false\n"));
    fs::write(scene.directory.0.join("GITHUB_OUTPUT"), "").unwrap();

    let (status, errors) = act(&scene, &[base, more]);
    assert_eq!(status, 3, "{errors}");
    assert!(errors.contains("allocations grew by 1 "), "{errors}");
    assert!(errors.contains("+1 copy < main"), "{errors}");
    let outputs = scene.read("GITHUB_OUTPUT");
    assert_eq!(outputs, "report=plimsoll/report.md\nexceeded=true\n");
    let summary = scene.read("GITHUB_STEP_SUMMARY");
    assert!(
        summary.ends_with(&scene.read("plimsoll/report.md")),
        "{summary}"
    );
    assert!(
        summary.contains("**Exceeded**: `allocations=0`"),
        "{summary}"
    );

    let (status, errors) = act(&scene, &[base, more, ("limits", "\n  5%\n\nbytes=1k\n")]);
    assert_eq!(status, 0, "{errors}");
    // The script fails if the program fails, a limit is exceeded, or the command is missing.
    let (status, errors) = act(&scene, &[base, ("command", "sh -c 'exit 7'")]);
    assert_eq!(status, 7, "{errors}");
    let (status, errors) = act(&scene, &[base, same, ("limits", "speed=1%")]);
    assert_eq!(status, 2, "{errors}");
    let (status, errors) = act(&scene, &[base, ("command", "./missing")]);
    assert_eq!(status, 127, "{errors}");
}

/// Returns the script of the template as the service runs it, which stops at the first failure.
fn gitlab_script() -> String {
    let template = parse(GITLAB);
    let lines = template[".plimsoll"]["script"].as_vec().unwrap();
    let lines: Vec<&str> = lines.iter().map(|line| line.as_str().unwrap()).collect();
    lines.join("\n")
}

#[test]
fn the_job_of_gitlab_fails_at_one_extra_allocation() {
    let scene = Scene::new("contrib-gitlab");
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=n", "-c", "user.email=e@example.com"])
            .args(arguments)
            .current_dir(&scene.directory.0)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    git(&["init", "-q"]);
    scene.source(".", 100);
    git(&["add", "."]);
    git(&["commit", "-qm", "base"]);
    let base = git(&["rev-parse", "HEAD"]);
    let template = parse(GITLAB);
    let mut variables: BTreeMap<String, String> = template[".plimsoll"]["variables"]
        .as_hash()
        .unwrap()
        .iter()
        .map(|(name, value)| {
            let text = |of: &Yaml| of.as_str().unwrap().to_owned();
            (text(name), text(value))
        })
        .collect();
    for (name, value) in [
        ("CI_MERGE_REQUEST_DIFF_BASE_SHA", &*base),
        ("PLIMSOLL_BUILD", BUILD),
        ("PLIMSOLL_COMMAND", "./program 'an argument'"),
    ] {
        variables.insert(name.to_owned(), value.to_owned());
    }
    let script = gitlab_script();
    for (blocks, limits, expected) in [
        (100, None, 0),
        (101, None, 3),
        (101, Some("allocations=1% bytes=1k"), 0),
        (101, Some("allocations=1"), 0),
        (101, Some("speed=1%"), 2),
    ] {
        scene.source(".", blocks);
        if let Some(limits) = limits {
            variables.insert("PLIMSOLL_LIMITS".to_owned(), limits.to_owned());
        }
        let _ = fs::remove_dir_all(scene.directory.0.join("plimsoll"));
        let output = scene.run(&["sh", "-e", "-c"], &script, &variables);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{blocks} {limits:?}: {errors}"
        );
        if expected == 3 {
            assert!(errors.contains("+1 copy < main"), "{errors}");
            let report = scene.read("plimsoll/report.md");
            assert!(report.contains("**Exceeded**"), "{report}");
        }
    }
}

/// The example passes inputs that the action declares, and uses outputs that it has.
#[test]
fn the_example_fits_the_action() {
    let (action, example) = (parse(ACTION), parse(EXAMPLE));
    let steps = example["jobs"]["memory"]["steps"].as_vec().unwrap();
    let is_use = |step: &&Yaml| {
        step["uses"]
            .as_str()
            .is_some_and(|of| of.contains("contrib/"))
    };
    let step = steps.iter().find(is_use).unwrap();
    let path = text(step, "uses").strip_prefix("./new/").unwrap();
    assert!(contrib().join("..").join(path).join("action.yml").is_file());
    for (name, _) in step["with"].as_hash().unwrap() {
        assert!(
            !action["inputs"][name.as_str().unwrap()].is_badvalue(),
            "{name:?}"
        );
    }
    let inputs = action["inputs"].as_hash().unwrap();
    for (name, input) in inputs {
        let is_given = !step["with"][name.as_str().unwrap()].is_badvalue();
        assert!(
            is_given || input["required"].as_bool() == Some(false),
            "{name:?}"
        );
    }
    let used = fs::read_to_string(contrib().join(EXAMPLE)).unwrap();
    let outputs = used.split("steps.memory.outputs.").skip(1);
    let mut count = 0;
    for output in outputs {
        let name = output.split(|of: char| !of.is_ascii_alphanumeric()).next();
        assert!(!action["outputs"][name.unwrap()].is_badvalue(), "{name:?}");
        count += 1;
    }
    assert!(count > 0);
}

/// actionlint checks the workflow, the inputs that it passes to the action, and its scripts.
#[test]
fn actionlint_accepts_the_example() {
    let program = std::env::var_os("PLIMSOLL_ACTIONLINT").unwrap_or_else(|| "actionlint".into());
    if Command::new(&program).arg("--version").output().is_err() {
        plimsoll_testkit::skip!("actionlint is not installed");
        return;
    }
    let directory = Directory::new("contrib-actionlint");
    let check = |example: &str| {
        for (name, text) in [
            (".github/workflows/example.yml", example),
            // The workflow checks the project out into a folder.
            ("new/contrib/github-action/action.yml", &read(ACTION)),
        ] {
            let path = directory.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(directory.0.join(".git")).unwrap();
        let mut command = Command::new(&program);
        command.arg("-no-color").current_dir(&directory.0);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text)
    };
    let example = read(EXAMPLE);
    let (is_valid, text) = check(&example);
    assert!(is_valid, "{text}");
    // An input that the action lacks is found.
    let (is_valid, text) = check(&example.replace("base-command:", "base-comand:"));
    assert!(!is_valid && text.contains("base-comand"), "{text}");
}

fn read(file: &str) -> String {
    fs::read_to_string(contrib().join(file)).unwrap()
}
