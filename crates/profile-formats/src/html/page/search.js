// Searches functions by name, module and source file, and counts the samples whose stacks match.

/** @import { CallTree } from "./call_tree.js" */
/** @import { Functions } from "./document.js" */

/**
 * @typedef {object} SearchResult
 * @property {Uint8Array} matches 1 for each function that matches; roots never match
 * @property {number} functionCount the number of functions that match
 * @property {boolean} isLiteral the pattern is not a valid regular expression and is searched as text
 */

/** @returns {SearchResult | null} null for an empty pattern */
export function searchFunctions(/** @type {Functions} */ functions, /** @type {string} */ pattern) {
  if (pattern === "") return null;
  const { expression, isLiteral } = compilePattern(pattern);
  const matches = new Uint8Array(functions.name.length);
  let count = 0;
  for (let functionIndex = 0; functionIndex < functions.count; functionIndex += 1) {
    const texts = [functions.name[functionIndex], functions.module[functionIndex], functions.place[functionIndex]];
    if (texts.some((text) => text !== "" && expression.test(text))) {
      matches[functionIndex] = 1;
      count += 1;
    }
  }
  return { matches, functionCount: count, isLiteral };
}

/** Compiles a pattern, which is case-sensitive if it contains an upper-case letter. */
function compilePattern(/** @type {string} */ pattern) {
  const flags = /\p{Lu}/u.test(pattern.replace(/\\./g, "")) ? "" : "i";
  try {
    return { expression: new RegExp(pattern, flags), isLiteral: false };
  } catch {
    return { expression: new RegExp(escapePattern(pattern), flags), isLiteral: true };
  }
}

/** A pattern that finds a text. */
export function escapePattern(/** @type {string} */ text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

/** Counts the samples of a subtree whose stacks contain a matching function, in each profile. */
export function countMatchedSamples(/** @type {CallTree} */ tree, top, /** @type {SearchResult} */ { matches }) {
  const samples = tree.sides.map(() => 0);
  for (let node = top; node < tree.end[top]; ) {
    if (matches[tree.function[node]]) {
      tree.sides.forEach(({ total }, side) => (samples[side] += total[node]));
      node = tree.end[node];
    } else {
      node += 1;
    }
  }
  return samples;
}

/** Marks the nodes of all stacks that match or have a matching ancestor. */
export function markMatchedNodes(
  /** @type {{parent: Int32Array, function: Int32Array}} */ tree,
  /** @type {SearchResult} */ result,
) {
  const matched = new Uint8Array(tree.parent.length);
  for (let node = 1; node < matched.length; node += 1) {
    matched[node] = matched[tree.parent[node]] | result.matches[tree.function[node]];
  }
  return matched;
}
