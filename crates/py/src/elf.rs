//! What can be told of a program from its file: whether the preloaded library can be loaded into
//! it, and whether it is a CPython whose GIL can be served.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{
    Endianness, FileKind, Object, ObjectSegment, ObjectSymbol, ReadCache, ReadRef, SymbolSection,
};

/// Symbols that a program needs to become, or to load, another one.
const STARTERS: [&str; 14] = [
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "fexecve",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "system",
    "dlopen",
    "syscall",
];

/// A program or a library, as its ELF headers and dynamic symbols describe it.
#[derive(Default)]
pub struct Inspection {
    pub bits: u8,
    pub machine: String,
    /// The dynamic loader; `None`: statically linked.
    pub interpreter: Option<String>,
    pub needed: Vec<String>,
    /// The first needed libpython that was found.
    pub libpython: Option<PathBuf>,
    /// `_PyRuntime` is visible: CPython 3.7 or later.
    pub has_runtime: bool,
    /// `PyConfig_InitPythonConfig` is visible: CPython 3.8 or later.
    pub has_config: bool,
    /// Any CPython: `Py_GetVersion` is visible.
    pub has_python: bool,
    pub is_free_threaded: bool,
    /// `3.11.7` when the file says so (3.11 and later), else `3.9` out of a libpython's name.
    pub version: Option<String>,
    /// It may start or load another program.
    pub starts_programs: bool,
    soname: Option<String>,
    run_path: Option<String>,
}

/// Inspects the file at `path` and the libpython that it needs, if any. `search`: folders that the
/// dynamic loader looks into first, as from `LD_LIBRARY_PATH`. `None`: it is no ELF file.
///
/// # Errors
/// The file cannot be read.
pub fn inspect(path: &Path, search: &[PathBuf]) -> io::Result<Option<Inspection>> {
    let Some(mut program) = inspect_file(path)? else { return Ok(None) };
    let Some(name) = program.needed.iter().find(|name| name.starts_with("libpython")) else {
        if program.has_python && program.version.is_none() {
            program.version = version_in_program_name(path);
        }
        return Ok(Some(program));
    };
    let Some(found) = find_library(name, path, &program, search) else {
        program.version = version_in_name(name);
        return Ok(Some(program));
    };
    if let Some(library) = inspect_file(&found)? {
        program.has_python |= library.has_python;
        program.has_runtime |= library.has_runtime;
        program.has_config |= library.has_config;
        program.is_free_threaded |= library.is_free_threaded;
        program.version = library.version.or(program.version.take());
    }
    program.libpython = Some(found);
    Ok(Some(program))
}

fn inspect_file(path: &Path) -> io::Result<Option<Inspection>> {
    let file = File::open(path)?;
    let data = ReadCache::new(file);
    let parsed = match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => parse::<FileHeader64<Endianness>, _>(&data),
        Ok(FileKind::Elf32) => parse::<FileHeader32<Endianness>, _>(&data),
        _ => return Ok(None),
    };
    parsed.map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
}

fn parse<'data, Elf, R>(data: R) -> object::Result<Inspection>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let file = ElfFile::<Elf, R>::parse(data)?;
    let endian = file.endian();
    let mut found = Inspection {
        bits: if file.is_64() { 64 } else { 32 },
        machine: machine(file.elf_header().e_machine(endian)),
        ..Inspection::default()
    };
    for segment in file.elf_program_headers() {
        if let Some(interpreter) = segment.interpreter(endian, data)? {
            found.interpreter = Some(text(interpreter));
        }
    }
    read_dynamic(&file, &mut found)?;
    for symbol in file.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        let is_ours = symbol.section() != SymbolSection::Undefined;
        match name {
            "_PyRuntime" => found.has_runtime |= is_ours,
            "PyConfig_InitPythonConfig" => found.has_config |= is_ours,
            "Py_GetVersion" => found.has_python |= is_ours,
            // Reference counts of a build without a GIL; no other build has the function.
            "_Py_MergeZeroLocalRefcount" => found.is_free_threaded |= is_ours,
            "Py_Version" if is_ours => {
                found.version = read_u64(&file, symbol.address()).map(version_text);
            }
            name if !is_ours && STARTERS.contains(&name) => found.starts_programs = true,
            _ => {}
        }
    }
    if found.version.is_none() {
        found.version = found.soname.as_deref().and_then(version_in_name);
    }
    Ok(found)
}

fn read_dynamic<'data, Elf, R>(
    file: &ElfFile<'data, Elf, R>,
    found: &mut Inspection,
) -> object::Result<()>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let table = file.elf_dynamic_table()?;
    let (mut rpath, mut runpath) = (None, None);
    for entry in &table {
        let Ok(value) = table.string(entry).map(text) else { continue };
        match entry.tag {
            elf::DT_NEEDED => found.needed.push(value),
            elf::DT_SONAME => found.soname = Some(value),
            elf::DT_RPATH => rpath = Some(value),
            elf::DT_RUNPATH => runpath = Some(value),
            _ => {}
        }
    }
    found.run_path = runpath.or(rpath);
    Ok(())
}

/// An `unsigned long` at an address of a 64-bit, little-endian program.
fn read_u64<'data>(file: &impl Object<'data>, address: u64) -> Option<u64> {
    let bytes =
        file.segments().find_map(|segment| segment.data_range(address, 8).ok().flatten())?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// `PY_VERSION_HEX` as text.
fn version_text(hex: u64) -> String {
    let [major, minor, micro] = [24, 16, 8].map(|bits| (hex >> bits) & 0xff);
    format!("{major}.{minor}.{micro}")
}

/// `3.9` out of `libpython3.9.so.1.0`.
fn version_in_name(name: &str) -> Option<String> {
    let (version, _) = name.strip_prefix("libpython")?.split_once(".so")?;
    Some(version.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).to_owned())
}

/// `3.9` out of `…/bin/python3.9`, which `path` may be a link to.
fn version_in_program_name(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    let version = path.file_name()?.to_str()?.strip_prefix("python")?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

fn machine(code: elf::Machine) -> String {
    match code {
        elf::EM_X86_64 => "x86_64".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        elf::EM_386 => "i386".to_owned(),
        elf::EM_ARM => "arm".to_owned(),
        other => format!("ELF machine {}", other.0),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where the dynamic loader would find a library, near enough: the run path, `search`, the folders
/// of its configuration, and its own. The cache file is not read.
fn find_library(
    name: &str,
    program: &Path,
    inspection: &Inspection,
    search: &[PathBuf],
) -> Option<PathBuf> {
    let program = fs::canonicalize(program).ok()?;
    let origin = program.parent()?.to_string_lossy();
    let run_path = inspection.run_path.as_deref().unwrap_or("");
    let own = run_path.split(':').filter(|folder| !folder.is_empty()).map(|folder| {
        PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
    });
    let multiarch = format!("{}-linux-gnu", inspection.machine);
    let usual = ["/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from);
    let multiarch = ["/lib", "/usr/lib"].map(|folder| Path::new(folder).join(&multiarch));
    own.chain(search.iter().cloned())
        .chain(configured_folders())
        .chain(multiarch)
        .chain(usual)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The folders named in the loader's configuration.
fn configured_folders() -> Vec<PathBuf> {
    let entries = fs::read_dir("/etc/ld.so.conf.d").into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}
