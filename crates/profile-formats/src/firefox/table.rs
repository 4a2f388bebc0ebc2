//! The tables of a thread, in the columns of the processed format.

use serde::Serialize;
use serde_json::Number;

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Samples {
    pub(super) length: usize,
    pub(super) weight_type: &'static str,
    pub(super) stack: Vec<Option<u32>>,
    /// Milliseconds since the previous sample.
    pub(super) time_deltas: Vec<f64>,
    pub(super) weight: Vec<Number>,
    /// Nanoseconds of CPU time since the previous sample.
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Option::is_none")]
    pub(super) thread_cpu_delta: Option<Vec<u64>>,
}

/// Call paths as a tree: each node has the index of its parent, which precedes it.
#[derive(Default, Serialize)]
pub(super) struct Stacks {
    pub(super) length: usize,
    pub(super) prefix: Vec<Option<u32>>,
    pub(super) frame: Vec<usize>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Frames {
    pub(super) length: usize,
    pub(super) address: Vec<i8>,
    pub(super) inline_depth: Vec<u8>,
    pub(super) category: Vec<usize>,
    pub(super) subcategory: Vec<u8>,
    pub(super) func: Vec<usize>,
    pub(super) native_symbol: Vec<Option<u32>>,
    #[serde(rename = "innerWindowID")]
    pub(super) inner_window_id: Vec<u8>,
    pub(super) line: Vec<Option<u32>>,
    pub(super) column: Vec<Option<u32>>,
}

impl Frames {
    /// Adds a frame without an address: it has its name already.
    pub(super) fn push(&mut self, function: usize, category: usize, line: Option<u32>) {
        self.length += 1;
        self.address.push(-1);
        self.inline_depth.push(0);
        self.category.push(category);
        self.subcategory.push(0);
        self.func.push(function);
        self.native_symbol.push(None);
        self.inner_window_id.push(0);
        self.line.push(line);
        self.column.push(None);
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Functions {
    pub(super) length: usize,
    pub(super) name: Vec<usize>,
    #[serde(rename = "isJS")]
    pub(super) is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    pub(super) relevant_for_js: Vec<bool>,
    pub(super) resource: Vec<i64>,
    pub(super) file_name: Vec<Option<usize>>,
    pub(super) line_number: Vec<Option<u32>>,
    pub(super) column_number: Vec<Option<u32>>,
}

impl Functions {
    pub(super) fn push(&mut self, name: usize, resource: Option<usize>, file: Option<usize>) {
        self.length += 1;
        self.name.push(name);
        self.is_js.push(false);
        self.relevant_for_js.push(false);
        self.resource.push(resource.and_then(|resource| resource.try_into().ok()).unwrap_or(-1));
        self.file_name.push(file);
        self.line_number.push(None);
        self.column_number.push(None);
    }
}

/// The libraries of functions.
#[derive(Default, Serialize)]
pub(super) struct Resources {
    pub(super) length: usize,
    pub(super) lib: Vec<usize>,
    pub(super) name: Vec<usize>,
    pub(super) host: Vec<Option<u32>>,
    pub(super) r#type: Vec<u8>,
}

impl Resources {
    pub(super) fn push(&mut self, library: usize, name: usize) {
        const LIBRARY: u8 = 1;
        self.length += 1;
        self.lib.push(library);
        self.name.push(name);
        self.host.push(None);
        self.r#type.push(LIBRARY);
    }
}

/// Native symbols: empty, because frames have their names.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NativeSymbols {
    length: usize,
    address: [(); 0],
    function_size: [(); 0],
    lib_index: [(); 0],
    name: [(); 0],
}
