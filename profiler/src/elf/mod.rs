//! One parsed ELF file from bytes: segments, build id, symbols, debug link.
