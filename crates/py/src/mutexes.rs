//! Reads lock profiles (`deconvoy_trace::mutexes`): which lock is which, and which functions take
//! it. Stacks are unwound here, from the pieces that were copied, by the programs' own unwind tables.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use deconvoy_trace::mutexes::{
    BLOCKS, BLOCKS_AT, FILE_BYTES, MAGIC, MAPS_AT, MAPS_BYTES, SAMPLES, SAMPLES_AT, SITES,
    STACK_BYTES, Sample, Site, VERSION, kind,
};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use serde_json::{Value, json};

use std::mem::{offset_of, size_of};

use deconvoy_trace::mutexes::Header;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as Regs, UnwinderAarch64 as Native,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Regs, UnwinderX86_64 as Native};

/// Callers that are told of a site.
const FRAMES: usize = 24;

/// What one place in the code did with one lock, by all threads.
#[derive(Default)]
struct Count {
    taken: u64,
    contended: u64,
    waited_ns: u64,
}

/// A site: the lock, where the call returns to, the kind.
type Place = (u64, u64, u64);

struct Stack<'a> {
    caller: u64,
    sp: u64,
    fp: u64,
    bytes: &'a [u8],
}

/// The profile in a file, as JSON.
///
/// # Errors
/// It cannot be read, or is none; the text says which.
pub fn read(path: &Path) -> Result<Value, String> {
    let data = fs::read(path).map_err(|error| error.to_string())?;
    profile(&data)
}

fn profile(data: &[u8]) -> Result<Value, String> {
    if data.get(..MAGIC.len()) != Some(&MAGIC) {
        return Err("no lock profile".to_owned());
    }
    let version = u32_at(data, offset_of!(Header, version));
    if version > VERSION {
        return Err(format!(
            "made by a newer deconvoy (version {version}, this one reads {VERSION})"
        ));
    }
    if data.len() < FILE_BYTES {
        return Err(format!("cut off: {} of {FILE_BYTES} bytes", data.len()));
    }
    let length = (u64_at(data, offset_of!(Header, maps)) as usize).min(MAPS_BYTES);
    let maps = String::from_utf8_lossy(&data[MAPS_AT..MAPS_AT + length]);
    let (counts, threads, places) = sites(data);
    let stacks = samples(data);
    let mut images = Images::load(&maps);
    let mut locks: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for (&(lock, caller, how), count) in &counts {
        let stack = places
            .get(&(lock, caller, how))
            .and_then(|key| stacks.get(key))
            .map_or_else(|| vec![caller], |stack| images.unwind(stack));
        let functions: Vec<_> = stack.iter().map(|&at| images.function(at)).collect();
        locks.entry(lock).or_default().push(json!({
            "kind": kind_name(how),
            "taken": count.taken,
            "contended": count.contended,
            "waited_ns": count.waited_ns,
            "stack": functions,
        }));
    }
    let locks: Vec<_> = locks
        .into_iter()
        .map(|(lock, sites)| json!({"name": images.data(lock), "address": lock, "sites": sites}))
        .collect();
    Ok(json!({
        "pid": u32_at(data, offset_of!(Header, pid)),
        "threads": threads,
        "uncounted": u64_at(data, offset_of!(Header, uncounted)),
        "locks": locks,
    }))
}

fn kind_name(how: u64) -> &'static str {
    match how {
        kind::MUTEX => "mutex",
        kind::READ => "read lock",
        kind::WRITE => "write lock",
        kind::SPIN => "spin lock",
        _ => "lock",
    }
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    let bytes = data.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    let bytes = data.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    u32::from_le_bytes(bytes.unwrap_or_default())
}

/// What each site counted, by how many threads in all, and the keys of the sites.
fn sites(data: &[u8]) -> (BTreeMap<Place, Count>, usize, HashMap<Place, u64>) {
    let mut counts: BTreeMap<Place, Count> = BTreeMap::new();
    let mut keys = HashMap::new();
    let mut threads = 0;
    for block in 0..BLOCKS {
        let mut used = false;
        for site in 0..SITES {
            let at = BLOCKS_AT + (block * SITES + site) * size_of::<Site>();
            let field = |offset| u64_at(data, at + offset);
            let key = field(offset_of!(Site, key));
            let place = (
                field(offset_of!(Site, mutex)),
                field(offset_of!(Site, caller)),
                field(offset_of!(Site, kind)),
            );
            if key == 0 || place.0 == 0 || place.1 == 0 {
                continue;
            }
            used = true;
            keys.insert(place, key);
            let count = counts.entry(place).or_default();
            count.taken = count.taken.saturating_add(field(offset_of!(Site, taken)));
            count.contended = count.contended.saturating_add(field(offset_of!(Site, contended)));
            count.waited_ns = count.waited_ns.saturating_add(field(offset_of!(Site, waited_ns)));
        }
        threads += usize::from(used);
    }
    (counts, threads, keys)
}

/// The last whole sample of each site, by its key: the first are of how the program begins.
fn samples(data: &[u8]) -> HashMap<u64, Stack<'_>> {
    let mut found = HashMap::new();
    for number in 0..SAMPLES {
        let at = SAMPLES_AT + number * size_of::<Sample>();
        let field = |offset| u64_at(data, at + offset);
        let key = field(offset_of!(Sample, key));
        if key == 0 {
            continue;
        }
        let begin = at + offset_of!(Sample, stack);
        let length = (field(offset_of!(Sample, bytes)) as usize).min(STACK_BYTES);
        let stack = Stack {
            caller: field(offset_of!(Sample, caller)),
            sp: field(offset_of!(Sample, sp)),
            fp: field(offset_of!(Sample, fp)),
            bytes: data.get(begin..begin + length).unwrap_or(&[]),
        };
        found.insert(key, stack);
    }
    found
}

/// A line of the maps that is of a file.
struct Mapping {
    range: Range<u64>,
    /// It has code.
    runs: bool,
    offset: u64,
    path: String,
}

/// A program or library, where it was loaded.
struct Image {
    /// The last part of its path.
    name: String,
    /// From its own addresses to those in the process.
    bias: u64,
    range: Range<u64>,
    /// Functions and data: where in the file's addresses, how long, what; in order.
    symbols: Vec<(u64, u64, String)>,
}

/// All that was mapped.
struct Images {
    images: Vec<Image>,
    others: Vec<(Range<u64>, String)>,
    unwinder: Native<Vec<u8>>,
    cache: Cache,
}

impl Images {
    fn load(maps: &str) -> Images {
        let mut files: BTreeMap<String, Vec<Mapping>> = BTreeMap::new();
        let mut others = Vec::new();
        for line in maps.lines() {
            let Some(mapping) = mapping(line) else { continue };
            if mapping.path.starts_with('/') {
                files.entry(mapping.path.clone()).or_default().push(mapping);
            } else {
                others.push((mapping.range, mapping.path));
            }
        }
        let mut unwinder = Native::new();
        let images = files
            .into_iter()
            .filter_map(|(path, mappings)| image(&path, &mappings, &mut unwinder))
            .collect();
        Images { images, others, unwinder, cache: Cache::new() }
    }

    /// The addresses that a stack goes through, innermost first.
    fn unwind(&mut self, stack: &Stack<'_>) -> Vec<u64> {
        let mut words = |address: u64| {
            let at = usize::try_from(address.checked_sub(stack.sp).ok_or(())?).map_err(|_| ())?;
            let end = at.checked_add(8).ok_or(())?;
            let bytes = stack.bytes.get(at..end).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        // Of the call itself: its next instruction may belong to another function.
        let first = stack.caller.saturating_sub(1);
        #[cfg(target_arch = "x86_64")]
        let regs = Regs::new(first, stack.sp, stack.fp);
        #[cfg(target_arch = "aarch64")]
        let regs = Regs::new(stack.caller, stack.sp, stack.fp);
        let mut frames = self.unwinder.iter_frames(first, regs, &mut self.cache, &mut words);
        let mut found = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            found.push(frame.address_for_lookup());
            if found.len() == FRAMES {
                break;
            }
        }
        if found.is_empty() { vec![first] } else { found }
    }

    fn image(&self, address: u64) -> Option<&Image> {
        self.images.iter().find(|image| image.range.contains(&address))
    }

    fn function(&self, address: u64) -> String {
        let Some(image) = self.image(address) else { return format!("0x{address:x}") };
        match image.symbol(address) {
            Some((name, _)) => name.to_owned(),
            None => format!("{}+0x{:x}", image.name, address.wrapping_sub(image.bias)),
        }
    }

    /// What a lock is called: a variable of a program or library, or where else it is.
    fn data(&self, address: u64) -> String {
        if let Some(image) = self.image(address) {
            return match image.symbol(address) {
                Some((name, 0)) => format!("{name} ({})", image.name),
                Some((name, far)) => format!("{name}+{far} ({})", image.name),
                None => format!("{}+0x{:x}", image.name, address.wrapping_sub(image.bias)),
            };
        }
        let other = self.others.iter().find(|(range, _)| range.contains(&address));
        match other.map(|(_, name)| name.as_str()) {
            Some("[stack]") => "a lock on the stack".to_owned(),
            _ => "a lock on the heap".to_owned(),
        }
    }
}

impl Image {
    /// The symbol that an address lies in, and how far from its beginning.
    fn symbol(&self, address: u64) -> Option<(&str, u64)> {
        let at = address.wrapping_sub(self.bias);
        let place = self.symbols.partition_point(|(begin, _, _)| *begin <= at);
        let (begin, size, name) = self.symbols.get(place.checked_sub(1)?)?;
        let far = at - begin;
        (far < (*size).max(1)).then_some((name.as_str(), far))
    }
}

/// `7f..-7f.. r-xp 00028000 08:01 1234   /usr/lib/libc.so.6`
fn mapping(line: &str) -> Option<Mapping> {
    let mut parts = line.split_ascii_whitespace();
    let (begin, end) = parts.next()?.split_once('-')?;
    let range = u64::from_str_radix(begin, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
    let runs = parts.next()?.contains('x');
    let offset = u64::from_str_radix(parts.next()?, 16).ok()?;
    let path = parts.skip(2).collect::<Vec<_>>().join(" ");
    (range.start < range.end).then_some(Mapping { range, runs, offset, path })
}

/// The file behind some mappings, and its unwind tables to the unwinder.
fn image(path: &str, mappings: &[Mapping], unwinder: &mut Native<Vec<u8>>) -> Option<Image> {
    // Data that a program has mapped may be of any size, and a device has no end.
    if !mappings.iter().any(|one| one.runs) || !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let data = fs::read(path).ok()?;
    let file = object::File::parse(&*data).ok()?;
    let first = mappings.iter().min_by_key(|one| one.range.start)?;
    let last = mappings.iter().map(|one| one.range.end).max()?;
    // Data that is zero at first lies behind what is mapped from the file.
    let ends = file.segments().map(|one| one.address().saturating_add(one.size())).max()?;
    let segment = file.segments().find(|one| one.file_range().0 & !0xfff == first.offset)?;
    let bias = first.range.start.wrapping_sub(segment.address() & !0xfff);
    let range = first.range.start..last.max(bias.wrapping_add(ends));
    let section = |name: &str| file.section_by_name(name);
    let bytes = |name: &str| Some(section(name)?.uncompressed_data().ok()?.into_owned());
    let svma = |name: &str| {
        let found = section(name)?;
        Some(found.address()..found.address().saturating_add(found.size()))
    };
    unwinder.add_module(Module::new(
        path.to_owned(),
        range.clone(),
        bias,
        ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: svma(".text"),
            text: bytes(".text"),
            got_svma: svma(".got"),
            eh_frame_svma: svma(".eh_frame"),
            eh_frame: bytes(".eh_frame"),
            eh_frame_hdr_svma: svma(".eh_frame_hdr"),
            eh_frame_hdr: bytes(".eh_frame_hdr"),
            debug_frame: bytes(".debug_frame"),
            ..Default::default()
        },
    ));
    let symbols = symbols(&file);
    let name = Path::new(path).file_name()?.to_string_lossy().into_owned();
    Some(Image { name, bias, range, symbols })
}

/// Functions and data, by their addresses. What several source files have under one name (`static`)
/// has its file's before it.
fn symbols(file: &object::File<'_>) -> Vec<(u64, u64, String)> {
    let mut found = Vec::new();
    let mut places: HashMap<String, HashSet<u64>> = HashMap::new();
    let mut source = "";
    for one in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(name) = one.name() else { continue };
        if one.kind() == SymbolKind::File {
            source = name;
        }
        if matches!(one.kind(), SymbolKind::Text | SymbolKind::Data) && one.address() > 0 {
            let name = demangled(name);
            places.entry(name.clone()).or_default().insert(one.address());
            found.push((one.address(), one.size(), name, one.is_local().then_some(source)));
        }
    }
    let mut symbols: Vec<_> = found
        .into_iter()
        .map(|(address, size, name, source)| match source {
            Some(source) if places[&name].len() > 1 => (address, size, format!("{source}: {name}")),
            _ => (address, size, name),
        })
        .collect();
    symbols.sort();
    symbols.dedup_by_key(|(begin, _, _)| *begin);
    symbols
}

fn demangled(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = cpp_demangle::Symbol::new(name).ok().and_then(|symbol| symbol.demangle().ok());
    cpp.unwrap_or_else(|| name.to_owned())
}
