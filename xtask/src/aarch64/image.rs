//! The machine's first file system: test binaries, libraries, busybox and the init script.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::LINKER;
use super::archive::Archive;
use super::exchange::{EXPORTED, EXPORTED_VARIABLE, IMPORTED, IMPORTED_VARIABLE};
use super::launcher::{COMMAND, FOLDER, PROGRAMS};
use super::protocol::{Expected, MARKER};

/// The libraries that the compiler brings.
const COMPILER_LIBRARIES: [&str; 2] = ["libgcc_s.so.1", "libstdc++.so.6"];

/// The kernel holds the image twice while it unpacks it, in 3 GiB.
const MAX_BYTES: u64 = 1 << 30;

/// A binary in the image.
#[derive(Debug)]
pub struct Binary {
    /// Its name in markers, and its time limit.
    pub expected: Expected,
    /// Its file on this machine.
    pub file: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// A file in the image that is not run by the init script.
#[derive(Debug)]
pub struct ExtraFile {
    /// Its path in the image, without a slash at the beginning.
    pub path: String,
    /// Its file on this machine.
    pub file: PathBuf,
}

/// Writes the image to `path`. `c_library` has the files of the C library and of its debug
/// information, which names the functions that the library does not export. All binaries get
/// `variables` in their environment.
///
/// # Errors
/// A file cannot be read or written, a library is missing, or the image is too large.
pub fn write(
    path: &Path,
    busybox: &Path,
    c_library: &Path,
    binaries: &[Binary],
    extra: &[ExtraFile],
    variables: &[(&str, String)],
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let read = |file: &Path| fs::read(file).map_err(|error| format!("{}: {error}", file.display()));
    let mut archive = Archive::new(BufWriter::new(File::create(path).map_err(failed)?));
    let own = [
        "bin", "dev", "etc", EXPORTED, "lib", "proc", "sys", "tests", "tmp",
    ];
    let mut folders: BTreeSet<&Path> = own.iter().map(Path::new).collect();
    for file in extra {
        let above = Path::new(&file.path).ancestors().skip(1);
        folders.extend(above.filter(|folder| !folder.as_os_str().is_empty()));
    }
    // A folder sorts before those below it.
    for folder in folders {
        let folder = folder.to_string_lossy();
        archive.folder(&folder).map_err(failed)?;
    }
    archive.device("dev/console", 5, 1).map_err(failed)?;
    add_folder(&mut archive, c_library, "")?;
    // Newer packages have all libraries below `usr`.
    if !c_library.join("lib").exists() {
        add_folder(&mut archive, &c_library.join("usr/lib"), "lib/")?;
    }
    let mut add = |name: &str, permissions, contents: &[u8]| {
        archive.file(name, permissions, contents).map_err(failed)
    };
    add("bin/busybox", 0o755, &read(busybox)?)?;
    add("etc/passwd", 0o644, b"root:x:0:0:root:/tmp:/bin/sh\n")?;
    add("etc/group", 0o644, b"root:x:0:\n")?;
    add("etc/hosts", 0o644, b"127.0.0.1 localhost\n::1 localhost\n")?;
    add("init", 0o755, script(binaries, variables).as_bytes())?;
    for library in COMPILER_LIBRARIES {
        add(&format!("lib/{library}"), 0o755, &read(&file_of(library)?)?)?;
    }
    for (index, binary) in binaries.iter().enumerate() {
        add(&path_in_image(index, binary), 0o755, &read(&binary.file)?)?;
    }
    for ExtraFile { path, file } in extra {
        add(path, 0o755, &read(file)?)?;
    }
    let bytes = archive.length();
    archive.finish().map_err(failed)?;
    println!("image: {} binaries, {} MiB", binaries.len(), bytes >> 20);
    match bytes <= MAX_BYTES {
        true => Ok(()),
        false => Err("the image is larger than 1 GiB: build with less debug information".into()),
    }
}

/// Adds the folders and files of `folder` below `prefix`. A link becomes a copy of its file; a link
/// to a folder, or to a file that is absent, is left out.
fn add_folder<W: Write>(
    archive: &mut Archive<W>,
    folder: &Path,
    prefix: &str,
) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{prefix}{name}");
        if path.is_dir() && !path.is_symlink() {
            archive.folder(&name).map_err(failed)?;
            add_folder(archive, &path, &format!("{name}/"))?;
        } else if path.is_file() {
            let contents = fs::read(&path).map_err(failed)?;
            archive.file(&name, 0o755, &contents).map_err(failed)?;
        }
    }
    Ok(())
}

/// Where the compiler for the machine has a library.
fn file_of(library: &str) -> Result<PathBuf, String> {
    let output = Command::new(LINKER)
        .arg(format!("-print-file-name={library}"))
        .output();
    let output = output.map_err(|error| format!("{LINKER}: {error}"))?;
    let file = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
    // It prints the bare name if it does not know the file.
    match file.is_absolute() {
        true => Ok(file),
        false => Err(format!("{LINKER} has no {library}")),
    }
}

/// Two test binaries may have one name.
fn path_in_image(index: usize, binary: &Binary) -> String {
    let name = binary.file.file_name().unwrap_or_default();
    format!("tests/{index}-{}", name.to_string_lossy())
}

/// The init script: mounts what programs expect, runs each binary, powers the machine off.
fn script(binaries: &[Binary], variables: &[(&str, String)]) -> String {
    let mut script = format!(
        r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp TMPDIR=/tmp TERM=dumb RUST_BACKTRACE=1 PLIMSOLL_EMULATED=1
export {EXPORTED_VARIABLE}=/{EXPORTED} {IMPORTED_VARIABLE}=/{IMPORTED}
export {PROGRAMS}=/{FOLDER} {COMMAND}=/{FOLDER}/plimsoll
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
ln -sf /proc/self/fd /dev/fd
ip link set lo up
hostname emulated
# The kernel prints only its panics, which would otherwise cut markers in two.
dmesg -n 1
# The kernel notes registers and instruction of each fault that ends a process.
echo 1 >/proc/sys/debug/exception-trace
ulimit -c 0
cd /tmp
seconds() {{ read up rest </proc/uptime; echo "${{up%.*}}"; }}
# Prints the name of each thread of all programs, and the kernel function that it waits in.
# The threads of a test harness have the names of their tests, in 15 characters.
report_threads() {{
    for process in /proc/[0-9]*; do
        readlink "$process/exe" >/dev/null || continue
        for thread in "$process"/task/*; do
            read thread_name <"$thread/comm" && read function <"$thread/wchan"
            [ "$thread_name" = init ] ||
                echo "at the time limit: thread $thread_name in $function"
        done
    done
}} 2>/dev/null
# NAME LIMIT BINARY ARGUMENTS...
run() {{
    name=$1 limit=$2
    shift 2
    began=$(seconds)
    echo "{MARKER} begin $name"
    {{ sleep "$limit"; report_threads; kill -9 -1; }} &
    # In the foreground: a shell ignores signals for programs in the background.
    "$@" </dev/null 2>&1
    status=$?
    # The watch, and processes that the binary leaves behind.
    kill -9 -1 2>/dev/null
    wait
    echo
    [ "$status" = 0 ] || dmesg | tail -n 60
    dmesg -c >/dev/null
    echo "{MARKER} end $name $status $(($(seconds) - began))"
    for file in /{EXPORTED}/*; do
        [ -e "$file" ] || continue
        echo "{MARKER} file ${{file##*/}}"
        gzip -c "$file" | base64
        echo "{MARKER} end-of-file"
    done
    rm -rf /tmp/* /dev/shm/* /{EXPORTED}/*
}}
echo "{MARKER} ready"
"#
    );
    for (name, value) in variables {
        script.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    for (index, binary) in binaries.iter().enumerate() {
        let Expected {
            name,
            limit_seconds,
        } = &binary.expected;
        let path = path_in_image(index, binary);
        script.push_str(&format!(
            "run {} {limit_seconds} {}",
            quoted(name),
            quoted(&format!("/{path}"))
        ));
        for argument in &binary.arguments {
            script.push(' ');
            script.push_str(&quoted(argument));
        }
        script.push('\n');
    }
    script.push_str(&format!("echo \"{MARKER} finished\"\npoweroff -f\n"));
    script
}

/// A word of the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
