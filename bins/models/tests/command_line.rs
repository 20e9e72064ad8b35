//! Exit codes and messages that need no tinygrad.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests stage small files themselves")]
#![expect(dead_code, reason = "the support module serves several test files")]

mod support;

use std::{fs, process::Command};

use support::{Bench, run};

fn models() -> Command {
    Command::new(env!("CARGO_BIN_EXE_models"))
}

#[test]
fn help_teaches_and_succeeds() {
    let (stdout, _) = run(models().arg("--help"), 0);
    for word in [
        "EXIT CODES",
        "--image-history-pipeline",
        "--external-gpu",
        "models --list",
        "driving_supercombo.onnx",
    ] {
        assert!(stdout.contains(word), "{word} is missing in\n{stdout}");
    }
}

#[test]
fn wrong_command_lines_end_with_two() {
    for words in [
        &["--chunk-size-mib", "0"][..],
        &["--part-limit-mib", "200"],
        &["--target", "gpu"],
        &["--version", "15"],
        &["--input-format", "onnx"],
        &["--model", "../x"],
        &["--gpu", "--target", "cpu"],
        &["--forse"],
        &["stray"],
    ] {
        let (_, stderr) = run(models().args(words), 2);
        assert!(stderr.starts_with("error: "), "{stderr}");
    }
}

#[test]
fn unknown_models_end_with_two_and_name_the_staged_ones() {
    let bench = Bench::new();
    fs::write(bench.dir.join("in/tr1422_driving_supercombo.onnx"), b"x").unwrap();
    fs::write(bench.dir.join("in/rdf2_driving_supercombo.onnx"), b"x").unwrap();
    let (_, stderr) = run(bench.models().arg("--tr1242"), 2);
    assert!(stderr.contains("do: did you mean tr1422?"), "{stderr}");
    let (stdout, _) = run(bench.models().args(["--list", "--json"]), 0);
    assert!(stdout.lines().all(|line| line.starts_with('{')) && stdout.lines().count() == 2, "{stdout}");
}

#[test]
fn the_qcom_target_needs_its_device() {
    if std::path::Path::new("/dev/kgsl-3d0").exists() {
        println!("skipped: the_qcom_target_needs_its_device: this is a device");
        return;
    }
    let bench = Bench::new();
    fs::write(bench.dir.join("in/a_driving_supercombo.onnx"), b"x").unwrap();
    let input = bench.dir.join("in");
    let (_, stderr) =
        run(models().arg("--a").arg("--input-dir").arg(input).arg("--output-dir").arg(bench.output()), 5);
    assert!(stderr.contains("--target cpu"), "{stderr}");
}

#[test]
fn sources_are_read_before_anything_is_compiled() {
    let bench = Bench::new();
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{:064}\nsize 9\n", 0);
    for (id, content, word) in [
        ("a", &b""[..], "empty"),
        ("b", pointer.as_bytes(), "Git LFS pointer"),
        ("c", b"<html>", "no ONNX model"),
    ] {
        fs::write(bench.dir.join(format!("in/{id}_driving_supercombo.onnx")), content).unwrap();
        let (_, stderr) = run(bench.models().args(["--model", id, "--python", "/no/such/python"]), 1);
        assert!(stderr.contains(word), "{word} is missing in {stderr}");
    }
    assert!(bench.outputs().is_empty());
}

#[test]
fn a_part_list_beside_the_parts_names_the_wrong_one() {
    let bench = Bench::new();
    let name = "m3_driving_tinygrad.pkl";
    let content: Vec<u8> = (0..5_300_000u32).map(|i| (i % 249) as u8).collect();
    fs::write(bench.dir.join(name), &content).unwrap();
    run(models().arg("--split-artifact").arg(bench.dir.join(name)).args(["--chunk-size-mib", "2"]), 0);
    fs::remove_file(bench.dir.join(name)).unwrap();
    let sha256 = |bytes: &[u8]| durable_fs::Sha256::digest(bytes).to_string();
    let part = |number: usize| fs::read(bench.dir.join(format!("{name}.p{number:02}"))).unwrap();
    let parts: Vec<_> = (0..3)
        .map(|number| {
            let bytes = part(number);
            serde_json::json!({"name": format!("{name}.p{number:02}"), "size": bytes.len(), "sha256": sha256(&bytes)})
        })
        .collect();
    let list = serde_json::json!({"format": 1, "manifest": "v23", "artifacts": [{
        "id": "m3", "filename": name, "size": content.len(), "sha256": sha256(&content), "parts": parts,
    }]});
    fs::write(bench.dir.join("model_parts_v23.json"), list.to_string()).unwrap();
    run(models().arg("join").arg(bench.dir.join(name)), 0);
    assert_eq!(fs::read(bench.dir.join(name)).unwrap(), content);

    let mut flipped = part(1);
    flipped[7] ^= 1;
    fs::write(bench.dir.join(format!("{name}.p01")), flipped).unwrap();
    for command in ["join", "verify"] {
        let (_, stderr) = run(models().arg(command).arg(bench.dir.join(format!("{name}.p00"))), 1);
        assert!(stderr.contains(&format!("{name}.p01")), "{command}: {stderr}");
    }
    assert_eq!(fs::read(bench.dir.join(name)).unwrap(), content, "the whole stays as it was");
    fs::write(bench.dir.join("model_parts_v24.json"), "{").unwrap();
    let (_, stderr) = run(models().arg("join").arg(bench.dir.join(name)), 2);
    assert!(stderr.contains("model_parts_v24.json"), "{stderr}");
}

#[test]
fn split_and_join_give_the_file_back() {
    let bench = Bench::new();
    let content: Vec<u8> = (0..5_300_000u32).map(|i| (i % 249) as u8).collect();
    let file = bench.dir.join("big.pkl");
    fs::write(&file, &content).unwrap();
    let (stdout, _) =
        run(models().arg("--split-artifact").arg(&file).args(["--chunk-size-mib", "2", "--json"]), 0);
    assert!(stdout.contains("big.pkl.p02"), "{stdout}");
    fs::remove_file(&file).unwrap();
    run(models().arg("join").arg(bench.dir.join("big.pkl.p01")), 0);
    assert_eq!(fs::read(&file).unwrap(), content);
    // The whole's name stands for its parts where only they are there; what is inside is no pickle.
    fs::remove_file(&file).unwrap();
    let (_, stderr) = run(models().arg("verify").arg(&file), 1);
    assert!(stderr.contains("big.pkl") && !stderr.contains("parts of big.pkl"), "{stderr}");
    run(models().arg("join").arg(bench.dir.join("big.pkl.sha256")), 0);
    fs::write(bench.dir.join("big.pkl.p01"), b"damaged").unwrap();
    run(models().arg("join").arg(&file), 1);
    run(models().arg("--split-artifact").arg(bench.dir.join("none.pkl")), 2);
    assert_eq!(fs::read(&file).unwrap(), content);
}

#[test]
fn a_job_that_cannot_be_read_leaves_a_result() {
    let bench = Bench::new();
    let job = bench.dir.join("job");
    fs::create_dir(&job).unwrap();
    for (request, kind) in [
        ("{", "files"),
        (r#"{"protocol": 9}"#, "bad_request"),
        (r#"{"protocol": 1, "kind": "fly"}"#, "files"),
    ] {
        fs::write(job.join("request.json"), request).unwrap();
        run(models().arg("job").arg(&job), 1);
        let result: serde_json::Value =
            serde_json::from_slice(&fs::read(job.join("result.json")).unwrap()).unwrap();
        assert_eq!(
            (&result["status"], &result["error"]["kind"]),
            (&"failed".into(), &kind.into()),
            "{request}"
        );
    }
    run(models().arg("job").arg(bench.dir.join("none")), 5);
    let (stdout, _) = run(models().arg("about"), 0);
    assert!(stdout.contains("driver_sha256"), "{stdout}");
}
