//! Joins the modules of the page's script to one: a page that is opened from a file cannot import others.

// Cargo reads instructions from the output.
#![allow(clippy::print_stdout)]

use std::{
    collections::{HashMap, HashSet},
    env, fs,
    path::Path,
};

const FOLDER: &str = "src/html/page";

/// The module that starts the page. It imports all other ones, itself or through others.
const START: &str = "start.js";

fn main() {
    println!("cargo::rerun-if-changed={FOLDER}");
    let mut script = Script::default();
    script.add(START);
    for entry in fs::read_dir(FOLDER).expect("the folder of the page") {
        let name = entry.expect("a file of the page").file_name().into_string().expect("an ASCII name");
        let is_module = Path::new(&name).extension().is_some_and(|extension| extension == "js");
        assert!(!is_module || script.added.contains(&name), "no module imports {name}");
    }
    let folder = env::var("OUT_DIR").expect("cargo sets the folder of outputs");
    fs::write(Path::new(&folder).join("page.js"), script.text).expect("the script can be written");
}

/// Modules without their imports, each after those that it imports.
#[derive(Default)]
struct Script {
    text: String,
    added: HashSet<String>,
    /// The modules whose imports are being added.
    importing: Vec<String>,
    /// The module of each name: the names of all modules share one scope.
    names: HashMap<String, String>,
}

impl Script {
    fn add(&mut self, module: &str) {
        assert!(!self.importing.iter().any(|name| name == module), "{:?} import {module}", self.importing);
        if self.added.contains(module) {
            return;
        }
        let path = Path::new(FOLDER).join(module);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (imports, body) = split(&text);
        self.importing.push(module.to_owned());
        for import in imports {
            self.add(imported_module(&import));
        }
        self.importing.pop();
        for line in body {
            self.append(module, line);
        }
        self.added.insert(module.to_owned());
    }

    fn append(&mut self, module: &str, line: &str) {
        let line = line.strip_prefix("export ").unwrap_or(line);
        if let Some(name) = declared_name(line)
            && let Some(other) = self.names.insert(name.to_owned(), module.to_owned())
        {
            panic!("{name} is declared in {other} and {module}");
        }
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// The import statements of a module, and its other lines.
fn split(text: &str) -> (Vec<String>, Vec<&str>) {
    let (mut imports, mut body) = (Vec::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("import ") {
            let mut statement = line.to_owned();
            while !statement.ends_with(';') {
                statement.push_str(lines.next().expect("the end of an import"));
            }
            imports.push(statement);
        } else if !line.starts_with("/** @import ") {
            body.push(line);
        }
    }
    (imports, body)
}

/// `a.js` of `import { b } from "./a.js";`. A name in another scope would be lost.
fn imported_module(statement: &str) -> &str {
    let module = statement.strip_suffix("\";").and_then(|start| start.split_once("} from \"./"));
    let (names, module) = module.unwrap_or_else(|| panic!("not a list of names of a module: {statement}"));
    assert!(!names.contains(" as "), "names must be the same in all modules: {statement}");
    module
}

/// The name that a line at the level of the module declares.
fn declared_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    let keywords = ["class ", "const ", "function ", "function* ", "let "];
    let name = keywords.iter().find_map(|keyword| line.strip_prefix(keyword))?;
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
}
