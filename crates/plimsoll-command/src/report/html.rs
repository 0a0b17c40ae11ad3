//! `--html`: the browser page with the profile, as one file.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Stop;
use super::shown::Shown;
use crate::page::{Entry, document};

/// Writes the page with the selected samples. The file refers to no other one.
pub(crate) fn html(to: &mut dyn Write, shown: &Shown<'_>) -> Result<(), Stop> {
    let input = shown.input;
    let entry = Entry {
        name: "0".to_owned(),
        title: match &input.base {
            Some(base) => format!("{}, less {base}", input.name),
            None => input.name.clone(),
        },
        is_difference: shown.is_difference(),
        sample_type: Some(input.profile.sample_types()[shown.sample_type].name.clone()),
        data: Some(STANDARD.encode(shown.profile())),
        ..Entry::default()
    };
    to.write_all(document(plimsoll_page::ALONE, &[entry]).as_bytes())?;
    Ok(())
}
