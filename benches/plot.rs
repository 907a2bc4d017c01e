//! A plot of a table as SVG by `plotters`, with logarithmic axes and a line for each series.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::results::{Table, duration, numbers};

const SIZE: (u32, u32) = (860, 420);

/// Okabe and Ito's palette, for people with colour blindness.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x88, 0x88, 0x88),
];

/// Plots time against the number of Services. Empty unless two clusters have the same number of endpoints per Service.
pub fn svg(title: &str, table: &Table) -> Result<String> {
    let series = lines(table);
    let all = || series.iter().flat_map(|(_, line)| line.iter());
    let services = range(all().map(|point| point.0));
    if services.end <= services.start {
        return Ok(String::new());
    }
    let mut out = String::new();
    draw(&mut out, title, &series, services, range(all().map(|point| point.1)))
        .map_err(|error| anyhow!("draw the plot of {title}: {error}"))?;
    Ok(out)
}

type PlotLine = (String, Vec<(f64, f64)>);

/// Returns a line per row of the table. Its points are the clusters with ten endpoints per Service, or, if there are
/// none, with as many as the first column's.
fn lines(table: &Table) -> Vec<PlotLine> {
    let parts: Vec<Vec<u64>> = table.columns.iter().map(|column| numbers(column)).collect();
    let endpoints = |parts: &[u64]| if parts.len() > 1 { parts.first().copied() } else { None };
    let all = || parts.iter().map(|parts| endpoints(parts));
    let wanted = all().find(|one| *one == Some(10)).or_else(|| all().next()).flatten();
    let rows = table.rows.iter().map(|(name, cells)| {
        let points =
            cells.iter().zip(&parts).filter(|(_, parts)| endpoints(parts) == wanted).filter_map(|(cell, parts)| {
                let services = parts.last().copied().filter(|services| *services > 0)?;
                Some((services as f64, cell.as_ref()?.median))
            });
        (name.clone(), points.collect())
    });
    rows.collect()
}

fn range(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)));
    low..high
}

fn draw(
    out: &mut String,
    title: &str,
    series: &[PlotLine],
    services: std::ops::Range<f64>,
    times: std::ops::Range<f64>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let area = SVGBackend::with_string(out, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let times = times.start / 1.5..times.end * 1.5;
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{title}: median time against services"), ("sans-serif", 16))
        .margin(10)
        .margin_right(20)
        .x_label_area_size(36)
        .y_label_area_size(72)
        .build_cartesian_2d(services.log_scale(), times.log_scale())?;
    chart
        .configure_mesh()
        .x_desc("services")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| duration(*value))
        .light_line_style(RGBColor(0xf2, 0xf2, 0xf2))
        .draw()?;
    for (index, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
        let drawn = chart.draw_series(line)?;
        drawn.label(name).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    let mut style = chart.configure_series_labels();
    let style = style.position(SeriesLabelPosition::UpperLeft);
    style.background_style(WHITE.mix(0.8)).border_style(RGBColor(0xcc, 0xcc, 0xcc)).draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::PointId;
    use crate::results::{Detail, Point};

    #[test]
    fn every_series_has_a_line_and_a_name() {
        let point = |series: &str, value: &str, median| Point {
            id: PointId::new("g", series, value),
            median,
            between: (median, median),
            throughput: None,
            detail: Detail::default(),
            is_fresh: true,
            change: None,
        };
        let points = [
            point("nft", "10x10", 1e6),
            point("nft", "100x10", 1e7),
            point("legacy", "10x10", 2e6),
            point("legacy", "100x10", 3e6),
            point("legacy", "100x1", 9e6),
        ];
        let text = svg("g", &Table::of(&points, "g", &[])).unwrap();
        assert_eq!(text.matches("<circle").count(), 4, "{text}");
        assert!(text.contains("\nnft\n") && text.contains("\nlegacy\n"), "{text}");
        let one_size = Table::of(&points[..1], "g", &[]);
        assert_eq!(svg("g", &one_size).unwrap(), "");
    }
}
