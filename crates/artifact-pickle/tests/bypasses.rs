//! The known families of ways around pickle scanners. Each is refused for what it is, not for a name on a list.

mod support;

use artifact_pickle::{AllowList, FileKind, Graph, InspectOptions, Limits, inspect};
use support::{fixture, write};

/// The verdict over a stream as each kind of file: every one of them must refuse.
fn refused(stream: &[u8], words: &str) {
    let graph = match Graph::read_bytes(stream, &Limits::default()) {
        Ok(graph) => graph,
        Err(error) => return assert!(error.to_string().contains(words), "{words}: {error}"),
    };
    for kind in [FileKind::Driving, FileKind::Jit, FileKind::Metadata, FileKind::Other] {
        let refusals = graph.refusals(kind, &AllowList::built_in());
        let found = refusals.iter().any(|refusal| refusal.to_string().contains(words));
        assert!(found, "{kind}: {words}: {refusals:#?}\n{}", graph.show(graph.root()));
    }
}

/// `module.name(argument)` in protocol 0.
fn call(module: &str, name: &str) -> Vec<u8> {
    format!("c{module}\n{name}\n(Vx\ntR.").into_bytes()
}

#[test]
fn no_name_outside_of_the_list_is_accepted() {
    // Ordinary modules that run code, by the families in which scanners have missed them.
    let families = [
        "os system, os popen, posix system, nt system, subprocess Popen, pty spawn, commands getoutput",
        "builtins eval, builtins exec, builtins compile, builtins getattr, builtins __import__, builtins open",
        "builtins globals, builtins breakpoint, builtins type, builtins object, builtins setattr, __builtin__ eval",
        "__builtin__ slice, importlib import_module, importlib.util spec_from_loader, runpy run_path, imp load_source",
        "marshal loads, types FunctionType, types CodeType, pickle loads, _pickle loads, dill loads, cloudpickle loads",
        "functools partial, functools reduce, operator attrgetter, operator methodcaller, operator itemgetter",
        "itertools starmap, copyreg _reconstructor, copy_reg _reconstructor, copyreg __newobj__, _codecs encode",
        "cProfile run, profile run, pdb run, bdb Bdb, trace Trace, timeit timeit, doctest debug_script, code interact",
        "pip main, pip._internal main, ensurepip _run_pip, venv create, idlelib.pyshell main, lib2to3.main main",
        "torch.utils.collect_env run, torch.hub load, numpy.f2py.crackfortran getlincoef, numpy.testing runstring",
        "asyncio.unix_events _UnixSubprocessTransport, multiprocessing.util spawnv_passfds, socket create_connection",
        "ctypes CDLL, webbrowser open, urllib.request urlopen, shutil rmtree, tempfile mktemp, sys exit, signal alarm",
        "picklescan.scanner scan_pickle_bytes, fickling.fickle Pickled, modelscan.scanners PickleScanner",
        "tinygrad.helpers _serialize_code, tinygrad.helpers fetch, tinygrad.tensor os, tinygrad.device Device",
        "tinygrad.uop.ops exec_alu, tinygrad.engine.jit functools, tinygrad UOp, tinygrad.uop.ops.UOp __init__",
        "tinygrad.engine.jit Tinyjit, Tinygrad.tensor Tensor, tinygrad.tensor  Tensor, numpy ndarray",
    ];
    let mut count = 0;
    for pair in families.iter().flat_map(|family| family.split(", ")) {
        let (module, name) = pair.split_once(' ').expect("a module and a name");
        let graph = Graph::read_bytes(&call(module, name), &Limits::default()).expect("well-formed");
        let refusals = graph.refusals(FileKind::Driving, &AllowList::built_in());
        assert_eq!(refusals[0].offset, 0, "{pair}");
        assert!(refusals[0].to_string().contains(name.trim()), "{pair}: {refusals:?}");
        count += 1;
    }
    assert!(count > 70);
}

#[test]
fn an_allowed_name_is_only_good_for_making_objects() {
    let class = "ctinygrad.uop.ops\nUOp\n";
    for (stream, words) in [
        // Attributes of allowed classes.
        ("ctinygrad.uop.ops\nUOp.__init__.__globals__\n.".to_owned(), "reaches through attributes"),
        // A class handed over as a value.
        (format!("{class}."), "uses tinygrad.uop.ops.UOp as a value"),
        (format!("({class}t."), "uses tinygrad.uop.ops.UOp as a value"),
        (format!("(Vk\n{class}d."), "uses tinygrad.uop.ops.UOp as a value"),
        // Calling what a call returned, or what is no class at all.
        (format!("{class}(tR(tR."), "which is no class that it names"),
        ("Vos.system\n(Vx\ntR.".to_owned(), "which is no class that it names"),
        // Keyword arguments, old-style instances.
        (format!("{class})}}\u{92}."), "makes tinygrad.uop.ops.UOp by keyword arguments"),
        (format!("({class}Vx\no."), "makes tinygrad.uop.ops.UOp by an old-style instance"),
        ("(Vx\nitinygrad.uop.ops\nUOp\n.".to_owned(), "makes tinygrad.uop.ops.UOp by an old-style instance"),
        // State on a class changes the loader; special names change the instance's class.
        (format!("{class}}}b."), "BUILD cannot be applied to a class or function"),
        (format!("{class}(tR(V__class__\nNdb."), "sets __class__ of tinygrad.uop.ops.UOp"),
        (format!("{class}(tR(V__setstate__\nNdb."), "sets __setstate__ of tinygrad.uop.ops.UOp"),
        (format!("{class}(tR(N(V__reduce__\nNdtb."), "sets __reduce__ of tinygrad.uop.ops.UOp"),
        (format!("{class}(tR(I1\nlb."), "sets a state that is no dict of names"),
        (format!("{class}(tRNb."), "sets a state that is no dict of names"),
        // Items call methods of the object.
        (format!("{class}(tRNa."), "adds items to tinygrad.uop.ops.UOp"),
        (format!("{class}(tRNNs."), "adds items to tinygrad.uop.ops.UOp"),
        // Allowed built-ins with other arguments.
        (
            "cbuiltins\nbytearray\n(I1000000000000\ntR.".to_owned(),
            "calls builtins.bytearray with (1000000000000,)",
        ),
        ("cbuiltins\nbytearray\n(Vx\nVrot13\ntR.".to_owned(), "calls builtins.bytearray with"),
        ("cbuiltins\nslice\n((tNNtR.".to_owned(), "calls builtins.slice with ((), None, None)"),
    ] {
        let bytes: Vec<u8> = stream.chars().map(|c| c as u8).collect();
        refused(&bytes, words);
    }
}

#[test]
fn a_scanner_and_a_loader_cannot_be_told_different_things() {
    for (stream, words) in [
        // The memo: rewritten, sparse, through every opcode that writes it.
        (
            &b"\x80\x04\x8c\x08tinygrad\x940\x8c\x02os\x940\x8c\x06system\x940h\x01h\x02\x93\x8c\x01x\x85R."
                [..],
            "os.system",
        ),
        (
            b"Vbuiltins\nq\x000Vos\np0\n0Vsystem\nr\x07\x00\x00\x000g0\nj\x07\x00\x00\x00\x93Vx\n\x85R.",
            "os.system",
        ),
        // Imported, then thrown away, or hidden under a mark.
        (b"cos\nsystem\n0N.", "os.system"),
        (b"(cos\nsystem\n1N.", "os.system"),
        (b"Ncos\nsystem\n20\x30.", "os.system"),
        // A stream that breaks after it has done its work: a loader would have run it by then.
        (b"cos\nsystem\n(Vx\ntR\xff", "0xff is no pickle opcode"),
        (b"cos\nsystem\n(Vx\ntR", "the file ends here"),
        // A second pickle behind the first.
        (b"N.cos\nsystem\n(Vx\ntR.", "bytes follow the end"),
        (b"\x80\x04N.\x80\x04N.", "bytes follow the end"),
        // Programs of the loading process.
        (b"\x80\x02\x82\x01.", "extension code 1"),
        (b"Vos.system\nQ.", "persistent IDs"),
        (b"Pos.system\n.", "persistent IDs"),
        // Frames that readers with and without buffering cut differently.
        (
            b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00\x8c\x0bcos\nsystem\n.N.",
            "crosses the end of its frame",
        ),
        // Numbers that parsers read differently.
        (b"I0x0\n.", "not a decimal integer"),
        (b"I 1\n.", "not a decimal integer"),
        (b"g 0\n.", "not a decimal index"),
    ] {
        refused(stream, words);
    }
}

#[test]
fn a_good_artifact_with_one_thing_added_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = std::fs::read(fixture("jit-0.14.0.pkl")).expect("readable");
    assert!(
        inspect(&fixture("jit-0.14.0.pkl"), &InspectOptions::default()).expect("reads").refusals.is_empty()
    );
    for addition in [&b"cos\nsystem\n0"[..], b"cos\nsystem\n(Vid\ntR0", b"cbuiltins\nslice\n(NNNtR0"] {
        // Behind PROTO, before the first frame.
        let bytes = [&good[..2], addition, &good[2..]].concat();
        let path = write(&folder, "added.pkl", &bytes);
        let inspection = inspect(&path, &InspectOptions::default()).expect("well-formed");
        assert_eq!(inspection.content.kind(), FileKind::CameraWarp);
        assert_eq!(inspection.refusals.len(), 1, "{:?}", inspection.refusals);
        assert_eq!(inspection.refusals[0].offset, 2);
    }
}

#[test]
fn the_list_is_no_longer_than_what_artifacts_name() {
    let mut learned = AllowList::default();
    for revision in ["0.12.0", "0.13.0", "0.14.0"] {
        let bytes = std::fs::read(fixture(&format!("driving-{revision}.pkl"))).expect("readable");
        learned.learn(FileKind::Driving, &Graph::read_bytes(&bytes, &Limits::default()).expect("reads"));
    }
    let listed = AllowList::built_in();
    for (module, names) in &learned.kinds[&FileKind::Driving] {
        assert!(names.is_subset(&listed.kinds[&FileKind::Driving][module]), "{module}");
    }
    // Beyond the small artifacts: what larger and published ones name.
    let count =
        |list: &AllowList| list.kinds[&FileKind::Driving].values().map(|names| names.len()).sum::<usize>();
    assert!(count(&listed) <= count(&learned) + 4, "{} listed, {} learned", count(&listed), count(&learned));
}
