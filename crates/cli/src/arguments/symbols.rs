//! Arguments that control symbolization.

use std::path::PathBuf;

use clap::Args;
use profiler::Builder;
use profiler_symbolize::SymbolDirectories;

/// Arguments that control symbolization.
#[derive(Args, Debug)]
pub(crate) struct SymbolArguments {
    /// Show inlined functions as frames (needs debug information)
    #[arg(long)]
    inlines: bool,
    /// Show source file and line of each frame (needs debug information)
    #[arg(long)]
    lines: bool,
    /// Show .NET names as the runtime spells them instead of as in C#; native names do not change
    #[arg(long)]
    raw_names: bool,
    /// Show the compilation tier of each .NET method: [QuickJitted], [OptimizedTier1], [PreJIT] ...
    #[arg(long)]
    dotnet_tiers: bool,
    /// Search debug files in this directory first; in a recorded profile, symbolize unsymbolized frames with them. Can
    /// be repeated
    #[arg(long, value_name = "DIR")]
    debug_dir: Vec<PathBuf>,
    /// Download debug files that are missing on this machine from this symbol server: a URL; microsoft (.NET builds);
    /// debuginfod (the servers in DEBUGINFOD_URLS). Requests contain build ids. Can be repeated
    #[arg(long, value_name = "URL")]
    symbol_server: Vec<String>,
    /// Store downloaded debug files in this directory [default: ~/.cache/profiler]
    #[arg(long, value_name = "DIR")]
    symbol_cache: Option<PathBuf>,
}

impl SymbolArguments {
    /// Applies the settings that sampling needs.
    pub(crate) fn apply(&self, builder: Builder) -> Builder {
        let builder = builder
            .inlines(self.inlines)
            .lines(self.lines)
            .raw_names(self.raw_names)
            .dotnet_tiers(self.dotnet_tiers);
        let builder = self.debug_dir.iter().fold(builder, Builder::debug_directory);
        let builder = self.symbol_server.iter().fold(builder, Builder::symbol_server);
        self.symbol_cache.iter().fold(builder, Builder::symbol_cache)
    }

    /// Whether symbol servers may be asked.
    pub(crate) fn uses_servers(&self) -> bool {
        !self.symbol_server.is_empty()
    }

    /// The symbol sources for the unsymbolized frames of a recorded profile; `None` without `--debug-dir`.
    pub(crate) fn symbols(&self) -> Option<SymbolDirectories> {
        let directories = self.debug_dir.clone();
        (!directories.is_empty()).then_some(SymbolDirectories {
            directories,
            inlines: self.inlines,
            lines: self.lines,
        })
    }
}
