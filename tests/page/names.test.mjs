// Tests how function names are shortened to fit into a box.

import assert from "node:assert/strict";
import { test } from "node:test";

import { listNameForms } from "../../crates/profile-formats/src/html/page/name_forms.js";
import { NameShortener } from "../../crates/profile-formats/src/html/page/names.js";

test("module, arguments, generics and namespaces go, in this order", () => {
  assert.deepEqual(listNameForms("System.Private.CoreLib!System.Collections.Generic.List`1[System.__Canon].Add(!0)"), [
    "System.Private.CoreLib!System.Collections.Generic.List`1[System.__Canon].Add(!0)",
    "System.Collections.Generic.List`1[System.__Canon].Add(!0)",
    "System.Collections.Generic.List`1[System.__Canon].Add",
    "System.Collections.Generic.List`1.Add",
    "List`1.Add",
    "Add",
  ]);
});

test("a part that is a type alone goes with its separator", () => {
  const name = "app::<impl app::Symbolizer>::poll";
  assert.deepEqual(listNameForms(name), [name, "app::poll", "poll"]);
});

test("the shortest name still identifies the function", () => {
  const shortest = {
    "std::vector<int, std::allocator<int>>::push_back(int&&)": "push_back",
    "<alloc::vec::Vec<T> as core::iter::Extend>::extend": "extend",
    "ns::(anonymous namespace)::foo(int) const": "foo",
    "app::<impl app::Symbolizer>::poll": "poll",
    "foo.part.0": "foo.part.0",
    "main.(*T).method": "method",
    "operator<<(int)": "operator<<",
    "[libfoo.so+0x12]": "[libfoo.so+0x12]",
    "LazyCompile:~fib /tmp/a.js:3:13": "LazyCompile:~fib /tmp/a.js:3:13",
    "work (a.rs:12)": "work",
    "((((": "((((",
    "a<b": "a<b",
    "": "",
    "   ": "   ",
    "::": "::",
  };
  for (const [name, last] of Object.entries(shortest)) assert.equal(listNameForms(name).at(-1), last, name);
});

test("a name that is too long in every form is truncated", () => {
  const names = new NameShortener({ name: ["App!Some.Long.Name()"] });
  assert.equal(names.shorten(0, 100), "App!Some.Long.Name()");
  assert.equal(names.shorten(0, 10), "Long.Name");
  assert.equal(names.shorten(0, 3), "Na…");
  assert.equal(names.shorten(0, 0), "N…");
});
