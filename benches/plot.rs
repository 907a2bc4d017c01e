//! A plot of the results as SVG: both axes logarithmic, a line for each group and series.

use std::fmt::Write;

use crate::results::{Point, milliseconds};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 440.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// Line colours that people with colour blindness can tell apart (Okabe and Ito's palette).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// One axis: powers of ten from `low` to `high`, drawn from `start` to `end`.
struct Axis {
    low: i32,
    high: i32,
    start: f64,
    end: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| *v > 0.0) {
            low = low.min(value.log10());
            high = high.max(value.log10());
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let low = low.floor() as i32;
        Axis { low, high: (high.ceil() as i32).max(low + 1), start, end }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.start + share * (self.end - self.start)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10f64.powi(power))
    }
}

/// The plot, as a self-contained SVG document.
pub fn svg(title: &str, points: &[Point]) -> String {
    let x = Axis::over(points.iter().map(|p| f64::from(p.services)), LEFT, WIDTH - RIGHT);
    let y = Axis::over(points.iter().map(|p| p.median_ms), HEIGHT - BOTTOM, TOP);
    let mut out = String::new();
    let _ = writeln!(
        out,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="22" font-size="14">{title}</text>"#
    );
    grid(&mut out, &x, &y);
    let mut names: Vec<(&str, &str)> = Vec::new();
    for point in points {
        if !names.contains(&(&point.group, &point.series)) {
            names.push((&point.group, &point.series));
        }
    }
    for (index, (group, series)) in names.iter().enumerate() {
        let line: Vec<&Point> = points.iter().filter(|p| p.group == *group && p.series == *series).collect();
        draw_line(&mut out, index, &format!("{group} {series}"), &line, &x, &y);
    }
    out.push_str("</svg>\n");
    out
}

fn grid(out: &mut String, x: &Axis, y: &Axis) {
    for value in x.ticks() {
        let at = x.at(value);
        let (bottom, below) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 16.0);
        let _ = writeln!(
            out,
            r##"<path d="M{at:.1} {TOP}V{bottom}" stroke="#ddd"/><text x="{at:.1}" y="{below}" text-anchor="middle">{value}</text>"##
        );
    }
    for value in y.ticks() {
        let (at, right, label) = (y.at(value), WIDTH - RIGHT, milliseconds(value));
        let _ = writeln!(
            out,
            r##"<path d="M{LEFT} {at:.1}H{right}" stroke="#ddd"/><text x="{}" y="{:.1}" text-anchor="end">{label}</text>"##,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let (middle, low) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0);
    let _ = writeln!(out, r#"<text x="{middle}" y="{low}" text-anchor="middle">services</text>"#);
}

fn draw_line(out: &mut String, index: usize, name: &str, line: &[&Point], x: &Axis, y: &Axis) {
    let colour = COLOURS[index % COLOURS.len()];
    let mut path = String::new();
    for point in line {
        let (px, py) = (x.at(f64::from(point.services)), y.at(point.median_ms));
        let _ = write!(path, "{}{px:.1} {py:.1}", if path.is_empty() { "M" } else { "L" });
        let _ = writeln!(out, r#"<circle cx="{px:.1}" cy="{py:.1}" r="3" fill="{colour}"/>"#);
    }
    let (left, level) = (WIDTH - RIGHT + 14.0, TOP + 12.0 + 18.0 * index as f64);
    let _ = writeln!(
        out,
        r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>
<rect x="{left}" y="{:.1}" width="10" height="10" fill="{colour}"/><text x="{}" y="{level:.1}">{name}</text>"#,
        level - 9.0,
        left + 15.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decade_is_the_same_distance_everywhere() {
        let axis = Axis::over([10.0, 5000.0].into_iter(), 0.0, 300.0);
        assert_eq!((axis.low, axis.high), (1, 4));
        assert_eq!(axis.ticks().map(|t| axis.at(t).round()).collect::<Vec<_>>(), [0.0, 100.0, 200.0, 300.0]);
    }

    #[test]
    fn every_series_has_its_line_and_its_name() {
        let point = |series: &str, services, median_ms| Point {
            group: "full".into(),
            series: series.into(),
            services,
            median_ms,
        };
        let text = svg("t", &[point("nft", 10, 1.0), point("nft", 100, 10.0), point("legacy", 10, 2.0)]);
        assert_eq!(text.matches("<circle").count(), 3);
        assert!(text.contains(">full nft</text>") && text.contains(">full legacy</text>"));
    }
}
