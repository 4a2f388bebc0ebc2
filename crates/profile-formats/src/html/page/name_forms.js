// Lists the forms of function names: module, arguments, generics and namespaces are removed in this order.

/** Separates namespaces, types and function. Suffixes of compilers (`f.cold`, `f.part.0`) belong to the function. */
const SEPARATOR = /::(?=.)|\.(?!cold|part|constprop|isra|lto_priv|llvm|shim|\d|$)/g;

/** @returns {string[]} the forms of a name, from the full name to the shortest that identifies the function */
export function listNameForms(/** @type {string} */ name) {
  if (/^[[(]/.test(name)) return [name];
  const bare = name.replace(/^[^!(<]*!(?=.)/, "");
  const withoutArguments = removeArguments(bare);
  const plain = removeGenerics(withoutArguments);
  const names = [name, bare, withoutArguments, plain];
  // A name with spaces or slashes has no namespaces.
  if (!/[\s/]/.test(plain)) {
    const starts = Array.from(plain.matchAll(SEPARATOR), (match) => match.index + match[0].length);
    names.push(plain.slice(starts.at(-2) ?? 0), plain.slice(starts.at(-1) ?? 0));
  }
  return names.filter((shorter, index) => index === 0 || (shorter.trim() !== "" && shorter !== names[index - 1]));
}

/** Removes the parentheses at the end of a name. */
function removeArguments(/** @type {string} */ name) {
  const end = name.replace(/(\)) .*$/, "$1");
  let open = 0;
  for (let at = end.length - 1; at > 0 && end.endsWith(")"); at -= 1) {
    if (end[at] === ")") open += 1;
    else if (end[at] === "(" && (open -= 1) === 0) return end.slice(0, at).trimEnd();
  }
  return name;
}

/** Removes angle and square brackets with their content, except from operators such as `operator<`. */
function removeGenerics(/** @type {string} */ name) {
  if (name.includes("operator")) return name;
  let plain = "";
  let open = 0;
  for (const c of name) {
    if (c === "<" || c === "[") open += 1;
    else if (c === ">" || c === "]") open -= 1;
    else if (open === 0) plain += c;
  }
  if (open !== 0) return name;
  // A part that was a type alone leaves its separator.
  return plain.replace(/\(anonymous namespace\)::|^::/g, "").replace(/(?:::){2,}/g, "::");
}
