// Search: which functions match a pattern, and which share of the samples has one of them.

/**
 * @typedef {object} Search
 * @property {Uint8Array} matches 1 for each function that matches; roots never do
 * @property {number} functions how many do
 * @property {boolean} isText the pattern is no regular expression, and taken as it is written
 */

/** @returns {Search | null} null for an empty pattern */
function search(/** @type {Functions} */ functions, /** @type {string} */ pattern) {
  if (pattern === "") return null;
  const { expression, isText } = expressionOf(pattern);
  const matches = new Uint8Array(functions.name.length);
  let count = 0;
  for (let which = 0; which < functions.count; which += 1) {
    const texts = [functions.name[which], functions.module[which], functions.place[which]];
    if (texts.some((text) => text !== "" && expression.test(text))) {
      matches[which] = 1;
      count += 1;
    }
  }
  return { matches, functions: count, isText };
}

/** Upper case in a pattern makes it tell upper case from lower case. */
function expressionOf(/** @type {string} */ pattern) {
  const flags = /\p{Lu}/u.test(pattern.replace(/\\./g, "")) ? "" : "i";
  try {
    return { expression: new RegExp(pattern, flags), isText: false };
  } catch {
    const literal = pattern.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    return { expression: new RegExp(literal, flags), isText: true };
  }
}

/** The samples of a subtree whose stack has a function that matches, in each profile. */
function matchedSamples(/** @type {CallTree} */ tree, top, /** @type {Search} */ { matches }) {
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

/** For each node of all stacks, whether it or a node above it matches. */
function matchedNodes(/** @type {{parent: Int32Array, function: Int32Array}} */ tree, /** @type {Search} */ found) {
  const matched = new Uint8Array(tree.parent.length);
  for (let node = 1; node < matched.length; node += 1) {
    matched[node] = matched[tree.parent[node]] | found.matches[tree.function[node]];
  }
  return matched;
}
