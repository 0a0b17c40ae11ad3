//! The tools and files that the machine consists of, and one run of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::LINKER;
use super::image::{self, Binary, ExtraFile};
use super::machine::{EMULATOR, Machine};
use super::protocol::Transcript;
use crate::cross::{ForeignPackages, install, is_in_path};

/// Emulator, compiler, kernel, C library and busybox, all present.
pub struct System {
    folder: PathBuf,
}

/// One run of the machine.
pub struct Run {
    /// The report of the console.
    pub transcript: Transcript,
    /// The failure of the emulator.
    pub faults: Vec<String>,
}

impl System {
    /// Installs the tools that are missing. Downloads kernel, C library and busybox to `folder`,
    /// once.
    ///
    /// # Errors
    /// Something is missing and cannot be installed: the message has what to do.
    pub fn prepare(folder: &Path) -> Result<Self, String> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut missing = Vec::new();
        if !is_in_path(EMULATOR) {
            missing.push("qemu-system-arm");
        }
        if !is_in_path(LINKER) {
            missing.extend(["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]);
        }
        install(&missing)?;
        let system = Self {
            folder: folder.to_owned(),
        };
        let needed = [system.kernel(), system.busybox(), system.c_library()];
        if !needed.iter().all(|path| path.exists()) {
            let [kernel, busybox, c_library] = needed.map(|path| path.display().to_string());
            system.download().map_err(|error| {
                format!(
                    "{error}; needed: an aarch64 Linux kernel at {kernel}, a static busybox at \
                     {busybox}, the files of the packages libc6 and libc6-dbg in {c_library}"
                )
            })?;
        }
        Ok(system)
    }

    fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }

    fn busybox(&self) -> PathBuf {
        self.folder.join("busybox")
    }

    /// The loader and the libraries of the C library, in `lib`, and their debug information, in
    /// `usr/lib/debug`.
    fn c_library(&self) -> PathBuf {
        self.folder.join("libc")
    }

    fn download(&self) -> Result<(), String> {
        let packages = ForeignPackages::begin(&self.folder.join("packages"), "arm64")?;
        let unpacked = self.folder.join("unpacked");
        // An empty package that depends on the current kernel.
        let kernel = packages.dependency("linux-image-cloud-arm64")?;
        packages.unpack(&kernel, &unpacked)?;
        packages.unpack("busybox-static", &unpacked)?;
        let c_library = unpacked.join("libc");
        for package in ["libc6", "libc6-dbg"] {
            packages.unpack(package, &c_library)?;
        }
        // Documentation and conversions of character sets.
        for unneeded in ["usr/share", "usr/lib/aarch64-linux-gnu/gconv"] {
            let path = c_library.join(unneeded);
            if path.exists() {
                fs::remove_dir_all(&path)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        let version = kernel.trim_start_matches("linux-image-");
        for (from, to) in [
            (format!("boot/vmlinuz-{version}"), self.kernel()),
            ("bin/busybox".into(), self.busybox()),
            ("libc".into(), self.c_library()),
        ] {
            if to.exists() {
                continue;
            }
            // Newer packages of busybox have it there.
            let candidates = [unpacked.join(&from), unpacked.join("usr").join(&from)];
            let found = candidates.iter().find(|path| path.exists());
            let found = found.ok_or_else(|| format!("Debian's package has no {from}"))?;
            fs::rename(found, &to).map_err(|error| format!("{}: {error}", to.display()))?;
        }
        fs::remove_dir_all(&unpacked).map_err(|error| format!("{}: {error}", unpacked.display()))
    }

    /// Returns the folder with Debian's Python for the machine, which is downloaded once.
    ///
    /// # Errors
    /// The packages cannot be downloaded: the message has what to do.
    pub fn python(&self) -> Result<PathBuf, String> {
        let folder = self.folder.join("python");
        if !folder.exists() {
            self.download_python(&folder).map_err(|error| {
                format!(
                    "{error}; needed: Python for aarch64 in {}: usr/bin/python3, its modules, and \
                     its libraries in lib",
                    folder.display()
                )
            })?;
        }
        Ok(folder)
    }

    fn download_python(&self, folder: &Path) -> Result<(), String> {
        let packages = ForeignPackages::begin(&self.folder.join("packages"), "arm64")?;
        // The package `python3` has no files. It depends on the current version.
        let python = packages.dependency("python3")?;
        let unpacked = self.folder.join("unpacked-python");
        for package in [
            format!("{python}-minimal"),
            format!("lib{python}-minimal"),
            "zlib1g".into(),
            "libexpat1".into(),
        ] {
            packages.unpack(&package, &unpacked)?;
        }
        let binaries = unpacked.join("usr/bin");
        let failed = |error: std::io::Error| format!("{}: {error}", binaries.display());
        fs::rename(binaries.join(&python), binaries.join("python3")).map_err(failed)?;
        fs::rename(&unpacked, folder).map_err(failed)
    }

    /// Boots the machine with the binaries and runs them, with `variables` in their environment.
    ///
    /// # Errors
    /// The image cannot be written, or the emulator cannot be started.
    pub fn run(
        &self,
        binaries: Vec<Binary>,
        extra: &[ExtraFile],
        variables: &[(&str, String)],
    ) -> Result<Run, String> {
        let path = self.folder.join("image");
        let (busybox, c_library) = (self.busybox(), self.c_library());
        image::write(&path, &busybox, &c_library, &binaries, extra, variables)?;
        let expected: Vec<_> = binaries.into_iter().map(|binary| binary.expected).collect();
        let mut transcript = Transcript::new(&expected);
        let began = Instant::now();
        let log = self.folder.join("console.log");
        let faults = Machine::start(&self.kernel(), &path)?.run(&mut transcript, &log)?;
        println!("\nthe machine ran for {} s", began.elapsed().as_secs());
        Ok(Run { transcript, faults })
    }
}
