//! A builder of Go function tables, for tests.

/// A version of the format, named by the version of Go 1 that introduced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoVersion {
    /// Go 1.2.
    V2,
    /// Go 1.16.
    V16,
    /// Go 1.18.
    V18,
    /// Go 1.20.
    V20,
    /// Go 1.26: as 1.20, without the address of the code.
    V26,
}

/// All versions.
pub const GO_VERSIONS: [GoVersion; 5] =
    [GoVersion::V2, GoVersion::V16, GoVersion::V18, GoVersion::V20, GoVersion::V26];

/// A function: its name, its size in bytes, and its file with the line of each byte of code.
#[derive(Clone)]
pub struct GoTestFunction<'a> {
    /// The name.
    pub name: &'a str,
    /// The file.
    pub file: &'a str,
    /// The lines, each with the number of bytes of its code.
    pub lines: &'a [(i32, u32)],
    /// The index of the inlined call in each range of code, with the size of the range in bytes. -1 is code that is not inlined. A
    /// function without ranges has no table of inlined calls.
    pub inlined: &'a [(i32, u32)],
    /// The size of the frame in each range of code, with the size of the range in bytes.
    pub frame_sizes: &'a [(i32, u32)],
    /// Whether it writes to the stack pointer: an older version of Go has no flag for that.
    pub writes_stack_pointer: bool,
    /// Whether stacks begin with it: as before.
    pub is_top_frame: bool,
}

/// A table of functions that follow one another from the address `text` on.
pub fn go_table(version: GoVersion, text: u64, functions: &[GoTestFunction<'_>]) -> Vec<u8> {
    let is_old = version == GoVersion::V2;
    let is_relative = !is_old && version != GoVersion::V16;
    // Strings and tables of values begin with an unused byte: offset 0 marks a missing one.
    let (mut names, mut files, mut values, mut units) = (vec![0], vec![0], vec![0], Vec::new());
    let mut described = Vec::new();
    for (index, function) in functions.iter().enumerate() {
        let bytes: u32 = function.lines.iter().map(|(_, bytes)| bytes).sum();
        let name = append(&mut names, function.name);
        let file = append(&mut files, function.file);
        units.push(file);
        let file_number = if is_old { i32::try_from(index).unwrap() + 1 } else { 0 };
        let file_values = append_values(&mut values, &[(file_number, bytes)]);
        let line_values = append_values(&mut values, function.lines);
        let frame_sizes = append_values(&mut values, function.frame_sizes);
        let inlined = if function.inlined.is_empty() {
            None
        } else {
            Some(append_values(&mut values, function.inlined))
        };
        let kind = u32::from(function.writes_stack_pointer) << 9 | u32::from(function.is_top_frame) << 8;
        let of_function = (bytes, name, frame_sizes, kind);
        described.push((of_function, file_values, line_values, index as u32, inlined));
    }
    let word = |number: u64| {
        if is_relative { (number as u32).to_le_bytes().to_vec() } else { number.to_le_bytes().to_vec() }
    };
    let word_bytes = if is_relative { 4 } else { 8 };
    let count = functions.len();
    let header_bytes = match version {
        GoVersion::V2 => 16,
        GoVersion::V16 => 8 + 7 * 8,
        _ => 8 + 8 * 8,
    };
    let entries_bytes = (count * 2 + 1) * word_bytes;
    // In 1.2, functions follow the header, and the list of files follows them.
    let entries_at = if is_old {
        header_bytes
    } else {
        header_bytes + names.len() + units.len() * 4 + files.len() + values.len()
    };
    let mut after_entries = Vec::new();
    let mut at = entries_at + entries_bytes;
    let (mut names_at, mut values_at) = (0, 0);
    if is_old {
        let list_at = at + 4;
        names_at = list_at + (count + 1) * 4;
        let files_at = names_at + names.len();
        values_at = files_at + files.len();
        after_entries.extend((list_at as u32).to_le_bytes());
        after_entries.extend((count as u32 + 1).to_le_bytes());
        for file in &units {
            after_entries.extend((files_at as u32 + file).to_le_bytes());
        }
        after_entries.extend([&names[..], &files, &values].concat());
        at += after_entries.len();
    }
    let (mut entries, mut records) = (Vec::new(), Vec::new());
    let mut start = if is_relative { 0 } else { text };
    for (of_function, file_values, line_values, unit, inlined) in described {
        let (bytes, name, frame_sizes, kind) = of_function;
        let record = at + records.len() - if is_old { 0 } else { entries_at };
        entries.extend([word(start), word(record as u64)].concat());
        records.extend(word(start));
        let offset = |value: u32, table: usize| value + table as u32;
        let tables = if inlined.is_some() { 3 } else { 0 };
        let (file_values, line_values) = (offset(file_values, values_at), offset(line_values, values_at));
        let frame_sizes = offset(frame_sizes, values_at);
        let mut fields = vec![offset(name, names_at), 0, 0, frame_sizes, file_values, line_values, tables];
        if !is_old {
            fields.push(unit);
        }
        if matches!(version, GoVersion::V20 | GoVersion::V26) {
            fields.push(1);
        }
        // The kind and the flags of the function, and its tables.
        fields.push(kind);
        fields.extend(inlined.into_iter().flat_map(|inlined| [0, 0, offset(inlined, values_at)]));
        records.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        start += u64::from(bytes);
    }
    entries.extend(word(start));
    let magic: u32 = match version {
        GoVersion::V2 => 0xffff_fffb,
        GoVersion::V16 => 0xffff_fffa,
        GoVersion::V18 => 0xffff_fff0,
        GoVersion::V20 | GoVersion::V26 => 0xffff_fff1,
    };
    let mut words = vec![count as u64];
    if !is_old {
        words.push(count as u64);
        match version {
            GoVersion::V18 | GoVersion::V20 => words.push(text),
            GoVersion::V26 => words.push(0),
            _ => {}
        }
        let units_at = header_bytes + names.len();
        let (files_at, values_at) = (units_at + units.len() * 4, units_at + units.len() * 4 + files.len());
        words.extend([header_bytes, units_at, files_at, values_at, entries_at].map(|at| at as u64));
    }
    let mut table = [&magic.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
    table.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    if !is_old {
        table.extend(
            [names, units.iter().flat_map(|unit| unit.to_le_bytes()).collect(), files, values].concat(),
        );
    }
    [table, entries, after_entries, records].concat()
}

fn append(strings: &mut Vec<u8>, text: &str) -> u32 {
    let at = strings.len();
    strings.extend(text.as_bytes());
    strings.push(0);
    at as u32
}

/// Appends a table of values, each with the number of bytes of its code.
fn append_values(tables: &mut Vec<u8>, values: &[(i32, u32)]) -> u32 {
    let at = tables.len();
    let mut before = -1;
    for (value, bytes) in values {
        let difference = value - before;
        append_number(tables, ((difference << 1) ^ (difference >> 31)).cast_unsigned());
        append_number(tables, *bytes);
        before = *value;
    }
    tables.push(0);
    at as u32
}

fn append_number(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}
