//! Shortens the labels in the boxes of a flame graph as the page shortens names, in place of cutting off one end.
//!
//! inferno writes a label for viewers without scripts, and a script that writes it again for the size of the window. Both have the whole
//! name of the function in the title of the box.

use std::{
    borrow::Cow,
    io::{self, BufWriter, Write},
};

use crate::short_name::fitting_name;

/// The functions of the page that list the forms of a name.
const NAME_FORMS: &str = include_str!("html/page/name_forms.js");

/// The name in a title, in the script of inferno.
const NAME_OF_TITLE: &str = r#"find_child(e, "title").textContent.replace(/\([^(]*\)$/,"")"#;

/// The function of inferno's script before which the new ones are.
const FIRST_USE: &str = "function update_text_for_elements(";

/// The longest form of a name that is not longer than its box, else the shortest one, whose end inferno truncates.
const FITTING_NAME: &str = r#"
function fitting_name(e, width) {
    var name = find_child(e, "title").textContent.replace(/ \([^(]*\)$/, "");
    var forms = listNameForms(name);
    var columns = width / (fontsize * fontwidth);
    return forms.find(function(form) { return form.length < columns; }) || forms[forms.length - 1];
}
"#;

/// The begin of a box and the end of its title.
const BOX: &str = "<g><title>";
const TITLE_END: &str = "</title>";

/// What follows a label, and the mark of a truncated one.
const LABEL_END: &str = "</text></g>";
const MARK: &str = "..";

/// Writes a picture of inferno with shortened labels.
pub(super) fn write(picture: &str, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let (script, boxes) = picture.split_at(picture.find(BOX).unwrap_or(picture.len()));
    let functions = format!("{}{FITTING_NAME}{FIRST_USE}", NAME_FORMS.replace("export ", ""));
    let script = script.replacen(FIRST_USE, &functions, 1).replace(NAME_OF_TITLE, "fitting_name(e, w)");
    to.write_all(script.as_bytes())?;
    for part in boxes.split_inclusive(LABEL_END) {
        to.write_all(with_short_label(part).as_bytes())?;
    }
    to.flush()
}

/// The text of a box with the form of its name that has no more characters than the truncated label.
fn with_short_label(part: &str) -> Cow<'_, str> {
    shortened(part).map_or(Cow::Borrowed(part), Cow::Owned)
}

fn shortened(part: &str) -> Option<String> {
    let (before, _) = part.split_once(LABEL_END)?;
    let (before, label) = before.rsplit_once('>')?;
    let (_, title) = before.split_once(BOX)?;
    let (title, _) = title.split_once(TITLE_END)?;
    let (name, _) = title.rsplit_once(" (")?;
    let is_truncated = label.ends_with(MARK) && label != name;
    is_truncated.then(|| {
        let columns = unescaped(label).chars().count();
        format!("{before}>{}{LABEL_END}", escaped(&fitting_name(&unescaped(name), columns)))
    })
}

/// The entities that inferno writes, and their characters; the last one is in the others.
const ENTITIES: [(&str, char); 5] =
    [("&lt;", '<'), ("&gt;", '>'), ("&quot;", '"'), ("&apos;", '\''), ("&amp;", '&')];

fn unescaped(text: &str) -> String {
    ENTITIES.iter().fold(text.to_owned(), |text, (entity, c)| text.replace(entity, &c.to_string()))
}

fn escaped(text: &str) -> String {
    ENTITIES.iter().rev().fold(text.to_owned(), |text, (entity, c)| text.replace(*c, entity))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, OutputOptions};
    use profiler_profile::test_profile::folded;

    fn written(picture: &str) -> String {
        let mut bytes = Vec::new();
        write(picture, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn box_of(title: &str, label: &str) -> String {
        format!("<g><title>{title}</title><rect x=\"1\"/><text x=\"2\">{label}</text></g>")
    }

    #[test]
    fn the_method_survives_in_a_truncated_label() {
        for (title, label, expected) in [
            ("App!Shop.Cart.Get(int) (3 samples, 3.49%)", "App!Shop.C..", "Cart.Get"),
            ("App!Shop.Cart.Get(int) (3 samples, 3.49%)", "Ap..", "Get"),
            ("a::b&lt;c&gt;::operator&lt;(int) (3 samples, 1%)", "a::b&lt;c&gt;::ope..", "operator&lt;"),
            ("main (3 samples, 3.49%)", "main", "main"),
            ("all.. (3 samples, 3.49%)", "all..", "all.."),
            ("main (3 samples, 3.49%)", "", ""),
        ] {
            assert_eq!(written(&box_of(title, label)), box_of(title, expected), "{title}");
        }
    }

    #[test]
    fn the_script_of_a_picture_shortens_names_as_the_page() {
        let mut bytes = Vec::new();
        Format::Svg.write_with(&folded(&[("p;main", 1)]), &OutputOptions::default(), &mut bytes).unwrap();
        let picture = String::from_utf8(bytes).unwrap();
        assert_eq!(picture.matches("fitting_name(e, w)").count(), 2);
        assert_eq!(picture.matches("function listNameForms(").count(), 1);
        assert!(!picture.contains("export ") && !picture.contains(NAME_OF_TITLE));
        assert!(picture.contains("var truncate_text_right = true;"));
    }
}
