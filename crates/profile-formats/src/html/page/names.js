// Names that fit: what tells functions apart stays, module, arguments and namespaces go first.

/** Between the parts of a name; what compilers put behind one (`f.cold`, `f.part.0`) is no part. */
const SEPARATOR = /::(?=.)|\.(?!cold|part|constprop|isra|lto_priv|llvm|shim|\d|$)/g;

/** @returns {string[]} from the whole name to the shortest that still says something */
function shorterNames(/** @type {string} */ name) {
  if (/^[[(]/.test(name)) return [name];
  const bare = name.replace(/^[^!(<]*!(?=.)/, "");
  const called = withoutArguments(bare);
  const plain = withoutGenerics(called);
  const names = [name, bare, called, plain];
  // A path or a sentence has no parts.
  if (!/[\s/]/.test(plain)) {
    const starts = Array.from(plain.matchAll(SEPARATOR), (match) => match.index + match[0].length);
    names.push(plain.slice(starts.at(-2) ?? 0), plain.slice(starts.at(-1) ?? 0));
  }
  return names.filter((shorter, index) => index === 0 || (shorter.trim() !== "" && shorter !== names[index - 1]));
}

/** Without the parentheses at its end. */
function withoutArguments(/** @type {string} */ name) {
  const end = name.replace(/(\)) .*$/, "$1");
  let open = 0;
  for (let at = end.length - 1; at > 0 && end.endsWith(")"); at -= 1) {
    if (end[at] === ")") open += 1;
    else if (end[at] === "(" && (open -= 1) === 0) return end.slice(0, at).trimEnd();
  }
  return name;
}

/** Without what stands in angle and square brackets; operators keep theirs. */
function withoutGenerics(/** @type {string} */ name) {
  if (name.includes("operator")) return name;
  let plain = "";
  let open = 0;
  for (const c of name) {
    if (c === "<" || c === "[") open += 1;
    else if (c === ">" || c === "]") open -= 1;
    else if (open === 0) plain += c;
  }
  return open === 0 ? plain.replace(/\(anonymous namespace\)::|^::/g, "") : name;
}

/** The longest of a name's forms that has room, cut where none has. */
class FittingNames {
  constructor(/** @type {Functions} */ functions) {
    this.functions = functions;
    /** @type {Map<number, string[]>} */
    this.known = new Map();
  }

  fitting(which, /** @type {number} */ columns) {
    if (!this.known.has(which)) this.known.set(which, shorterNames(this.functions.name[which]));
    const names = this.known.get(which);
    const shortest = names.at(-1);
    return names.find((name) => name.length <= columns) ?? `${shortest.slice(0, Math.max(1, columns - 1))}…`;
  }
}
