//! The difference of two profiles.

use super::{sites, write};
use plimsoll_args::args::ViewArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::input::Input;
use plimsoll_command::report::show_input;
use plimsoll_command::report::shown::Shown;
use plimsoll_launch::run::compare::{
    Basis, Comparison, Exceeded, Figure, Limit, Noise, SiteList, Sites, Unit, check, error,
};

/// Shows the difference, and returns the limits that it exceeds.
pub(super) fn show(
    base: &str,
    new: &str,
    view: &ViewArguments,
    is_markdown: bool,
    limits: &[Limit],
) -> Result<Vec<Exceeded>, Failure> {
    let (new, base) = (Input::read_one(new)?, Input::read_one(base)?);
    if !is_markdown && limits.is_empty() {
        show_input(&new.since(&base, view.normalize)?, view)?;
        return Ok(Vec::new());
    }
    let comparison = compare(&base, &new, view, limits)?;
    let exceeded = check(limits, &comparison)?;
    match is_markdown {
        true => write(view, &comparison.markdown(sites(view), &exceeded))?,
        false => show_input(&new.since(&base, view.normalize)?, view)?,
    }
    Ok(exceeded)
}

/// Compares the requested sample type, and those that limits name.
fn compare(
    base: &Input,
    new: &Input,
    view: &ViewArguments,
    limits: &[Limit],
) -> Result<Comparison, Failure> {
    let default = Shown::new(new, view)?.sample_type;
    let default = new.profile.sample_types()[default].name.clone();
    let mut names = vec![default.clone()];
    for name in limits.iter().filter_map(Limit::figure) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    let mut comparison = Comparison {
        before: base.name.clone(),
        now: new.name.clone(),
        notes: Vec::new(),
        figures: Vec::new(),
        lists: Vec::new(),
        limited: vec![default.clone()],
        listed: vec![default],
    };
    for name in names {
        let mut sums = Vec::new();
        let mut unit = None;
        let mut noise = Vec::new();
        for input in [base, new] {
            let view = ViewArguments {
                sample_type: Some(name.clone()),
                ..view.clone()
            };
            let shown = Shown::new(input, &view)?;
            let at = shown.sample_type;
            let here = Unit::from_name(shown.unit());
            if unit.as_ref().is_some_and(|unit| *unit != here) {
                let cause = format!("{name} has another unit than in {}", base.name);
                return Err(Failure::new(&input.name, cause));
            }
            unit = Some(here);
            noise.push(Noise::from_profile(&input.profile, at));
            let mut sites = Sites::default();
            sites.add_samples(&input.profile, &shown.frames, at, |add| {
                shown.each_sample(|sample, stack, _| add(sample, stack));
            });
            sums.push(sites);
        }
        let (Some(unit), [before, now]) = (unit, &sums[..]) else {
            continue;
        };
        comparison.figures.push(Figure {
            name: name.clone(),
            title: name.clone(),
            unit: unit.clone(),
            basis: match noise[..] {
                _ if noise.contains(&Noise::Unknown) => Basis::Measured,
                _ if noise.iter().all(|noise| *noise == Noise::None) => Basis::Exact,
                _ => Basis::Within(error(before.total(), now.total())),
            },
            before: Some(before.total().value),
            now: Some(now.total().value),
        });
        let list = SiteList::new(&name, &name, unit, before, now);
        comparison.lists.push(list);
    }
    Ok(comparison)
}
