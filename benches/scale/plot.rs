//! Lines over time as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::plot::COLOURS;

const SIZE: (u32, u32) = (860, 360);

pub struct Curve {
    pub name: String,
    /// Seconds and values.
    pub points: Vec<(f64, f64)>,
}

pub fn svg(title: &str, unit: &str, curves: &[Curve]) -> Result<String> {
    let mut out = String::new();
    draw(&mut out, title, unit, curves).map_err(|error| anyhow!("draw the plot of {title}: {error}"))?;
    Ok(out)
}

fn draw(
    out: &mut String,
    title: &str,
    unit: &str,
    curves: &[Curve],
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let most = |part: fn(&(f64, f64)) -> f64| {
        curves.iter().flat_map(|curve| curve.points.iter().map(part)).fold(1.0, f64::max)
    };
    let (seconds, values) = (most(|point| point.0), most(|point| point.1));
    let area = SVGBackend::with_string(out, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .margin_right(20)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..seconds, 0.0..values * 1.05)?;
    let mesh = &mut chart.configure_mesh();
    let whole = |value: &f64| format!("{value:.0}");
    mesh.x_desc("seconds").y_desc(unit).x_label_formatter(&whole).y_label_formatter(&whole);
    mesh.light_line_style(RGBColor(0xf2, 0xf2, 0xf2)).draw()?;
    for (index, curve) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2));
        let drawn = chart.draw_series(line)?;
        let legend = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2));
        drawn.label(&curve.name).legend(legend);
    }
    let mut style = chart.configure_series_labels();
    let style = style.position(SeriesLabelPosition::LowerRight);
    style.background_style(WHITE.mix(0.8)).border_style(RGBColor(0xcc, 0xcc, 0xcc)).draw()?;
    area.present()?;
    Ok(())
}
