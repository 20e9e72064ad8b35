//! Streams that are refused, each with its reason and place.

use artifact_pickle::{Graph, Limits};

fn refusal(bytes: &[u8]) -> String {
    Graph::read_bytes(bytes, &Limits::default()).expect_err("must be refused").to_string()
}

fn refusal_of_file(bytes: &[u8]) -> String {
    let mut source = std::io::Cursor::new(bytes);
    Graph::read(&mut source, &Limits::default()).expect_err("must be refused").to_string()
}

fn shown(bytes: &[u8]) -> String {
    let graph = Graph::read(&mut std::io::Cursor::new(bytes), &Limits::default()).expect("reads");
    graph.show(graph.root()).to_string()
}

#[test]
fn each_malformed_stream_has_its_own_message() {
    let cases: &[(&[u8], &str)] = &[
        (b"", "at byte 0: the file is empty"),
        (b"N", "at byte 1: the file ends here: the next opcode needs 1 more bytes, 0 are left"),
        (b"\xff.", "at byte 0: 0xff is no pickle opcode"),
        (b"\x80\x06N.", "at byte 0: protocol 6 is not supported (0 to 5 are)"),
        (b"\x80\x04\x80\x04N.", "at byte 2: PROTO is only allowed at the start of the stream"),
        (b".", "at byte 0: STOP takes a value that is not on the stack"),
        (b"NN.", "at byte 2: STOP leaves 1 unused values or marks on the stack"),
        (b"N(.", "at byte 2: STOP takes a value that is not on the stack"),
        (b"N.N", "at byte 2: 1 bytes follow the end of the pickle"),
        (b"t.", "at byte 0: TUPLE has no MARK to go back to"),
        (b"NR.", "at byte 1: REDUCE takes a value that is not on the stack"),
        (b"N(NR.", "at byte 3: REDUCE takes a value that is not on the stack"),
        (b"N(2.", "at byte 2: DUP takes a value that is not on the stack"),
        (b"h\x00.", "at byte 0: memo entry 0 was never stored"),
        (b"Nq\x05h\x04.", "at byte 3: memo entry 4 was never stored"),
        (b"g-1\n.", "at byte 1: GET is malformed: it is not a decimal index"),
        (b"Nr\xff\xff\xff\xff.", "at byte 1: more than 4194304 memo slots: "),
        (b"Pid\n.", "at byte 0: persistent IDs are refused"),
        (b"NQ.", "at byte 1: persistent IDs are refused"),
        (b"\x82\x07.", "at byte 0: extension code 7 is refused"),
        (b"\x83\x07\x01.", "at byte 0: extension code 263 is refused"),
        (b"\x84\x07\x00\x00\x01.", "at byte 0: extension code 16777223 is refused"),
        (b"I012\n.", "at byte 1: INT is malformed: it is not a decimal integer"),
        (b"L0x10L\n.", "at byte 1: LONG is malformed: it is not a decimal integer"),
        (b"F1_0\n.", "at byte 1: FLOAT is malformed: it is not a float"),
        (b"Snope\n.", "at byte 1: STRING is malformed: it is not a quoted ASCII string"),
        (b"U\x01\xe9.", "at byte 1: SHORT_BINSTRING is malformed: it is not ASCII"),
        (b"T\xff\xff\xff\xff.", "at byte 1: BINSTRING has the impossible length -1"),
        (b"V\\u12\n.", "at byte 1: UNICODE is malformed: bad escape"),
        (b"\x8c\x01\xff.", "at byte 1: SHORT_BINUNICODE is not valid UTF-8"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "at byte 1: the file ends here: BINUNICODE8 needs"),
        (b"B\x10\x00\x00\x00ab.", "at byte 5: the file ends here: bytes needs 16 more bytes, 3 are left"),
        (b"}(Nu.", "at byte 3: SETITEMS has a key without a value"),
        (b"(Nd.", "at byte 2: DICT has a key without a value"),
        (b"N(Ne.", "at byte 3: APPENDS cannot be applied to None"),
        (b"(Ne.", "at byte 2: APPENDS takes a value that is not on the stack"),
        (b"](Nu.", "at byte 3: SETITEMS has a key without a value"),
        (b"](NNu.", "at byte 4: SETITEMS cannot be applied to a list"),
        (b"](N\x90.", "at byte 3: ADDITEMS cannot be applied to a list"),
        (b"cos\nsystem\nNR.", "at byte 12: REDUCE cannot be applied to None"),
        (b"cos\nsystem\n}b.", "at byte 12: BUILD cannot be applied to a class or function"),
        (b"]}b.", "at byte 2: BUILD cannot be applied to a list"),
        (b"ca\nB\n)\x81}b}b.", "at byte 10: the object has been given a state already"),
        (b"N\x98.", "at byte 1: READONLY_BUFFER cannot be applied to None"),
        (b"\x80\x05\x97.", "at byte 2: NEXT_BUFFER asks for out-of-band buffer 0"),
        (b"NN\x93.", "at byte 2: STACK_GLOBAL cannot be applied to None"),
        (b"\x80\x04\x95\x09\x00\x00\x00\x00\x00\x00\x00N.", "at byte 2: the file ends here: a frame needs 9"),
        (
            b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x95\x01\x00\x00\x00\x00\x00\x00\x00N.",
            "at byte 11: framing is broken: a frame starts inside another",
        ),
        (
            b"\x80\x04\x95\x01\x00\x00\x00\x00\x00\x00\x00K\x07.",
            "at byte 13: framing is broken: an opcode crosses the end of its frame",
        ),
    ];
    for (bytes, expected) in cases {
        let got = refusal(bytes);
        assert!(got.starts_with(expected), "{bytes:?}\n  expected {expected}\n  got      {got}");
    }
}

#[test]
fn limits_stop_what_would_exhaust_memory() {
    let small = Limits { stack: 4, nodes: 400, depth: 8, edges: 16, ..Limits::small() };
    let deep = [b")".as_slice(), &b"\x85".repeat(9), b"."].concat();
    let marks = b"(".repeat(9);
    let floats = [b"(".as_slice(), &b"G00000000".repeat(3), b"1"].concat().repeat(60);
    let wide = b"(NNNt0".repeat(9);
    for (bytes, what) in [
        (b"NNNNN.".to_vec(), "values on the stack"),
        (deep, "levels of nesting"),
        (marks, "open marks"),
        (floats, "values:"),
        (wide, "members of containers"),
    ] {
        let message = Graph::read_bytes(&bytes, &small).expect_err("over a limit").to_string();
        assert!(message.contains(what), "{what}: {message}");
    }
    let long = [b"X\xff\xff\x00\x00".as_slice(), &[b'a'; 0xffff], b"."].concat();
    assert!(
        Graph::read_bytes(&long, &small).expect_err("over a limit").to_string().contains("bytes in a string")
    );
}

#[test]
fn a_list_that_contains_itself_is_shown() {
    assert!(shown(b"]q\x00h\x00a.").starts_with("[[[["));
}

#[test]
fn out_of_band_buffers_are_listed_not_read() {
    let stream = b"\x80\x05\x97\x98\x97\x86.";
    let mut file = (stream.len() as i64).to_le_bytes().to_vec();
    file.extend_from_slice(stream);
    for buffer in [&b"abc"[..], b""] {
        file.extend_from_slice(&(buffer.len() as i64).to_le_bytes());
        file.extend_from_slice(buffer);
    }
    assert_eq!(shown(&file), "(<buffer of 3 at 23>, <buffer of 0 at 34>)");
    let cut = &file[..file.len() - 9];
    let expected = "at byte 23: the file ends here: an out-of-band buffer needs 3 more bytes";
    assert!(refusal_of_file(cut).starts_with(expected), "{}", refusal_of_file(cut));
    let mut more = file.clone();
    more.extend_from_slice(&0i64.to_le_bytes());
    assert!(refusal_of_file(&more).ends_with("1 out-of-band buffers are not used by the pickle"));
    let mut negative = file.clone();
    negative[15..23].copy_from_slice(&(-1i64).to_le_bytes());
    assert!(refusal_of_file(&negative).ends_with("an out-of-band buffer has the impossible length -1"));
    assert!(refusal_of_file(&file[..12]).contains("the opcode stream needs 7 more bytes"));
}

#[test]
fn a_file_of_both_forms_is_refused() {
    let mut file = 0x0280i64.to_le_bytes().to_vec();
    file.extend_from_slice(b"\x80\x05");
    file.resize(8 + 0x280, b'N');
    assert!(refusal_of_file(&file).ends_with("loaders may disagree about it"));
}

#[test]
fn a_value_dropped_at_once_makes_a_length_plain() {
    // What the compiler writes where the length alone would begin like a plain pickle.
    let text = 0x0280 - b"\x80\x05X....\x97\x86.".len();
    let with = |padding: &[u8]| {
        let size = (text as u32).to_le_bytes();
        let code = [b"\x80\x05", padding, b"X", &size, &vec![b'x'; text], b"\x97\x86."].concat();
        let length = (code.len() as i64).to_le_bytes();
        [&length[..], &code, &3i64.to_le_bytes(), b"abc"].concat()
    };
    assert!(refusal_of_file(&with(b"")).ends_with("loaders may disagree about it"));
    assert!(shown(&with(b"N0")).contains("<buffer of 3"));
}
