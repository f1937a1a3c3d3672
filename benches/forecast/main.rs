//! Measures the forecasts on public series: `make bench-forecast`. Prints how often an alert in advance is right and
//! how early it is, beside the reference of the method and two rules that need no profile. `docs/forecast.md` explains
//! the columns. `cargo bench --bench forecast -- hourly` measures the hourly pass.

mod evaluation;
mod hourly;
mod long;
#[path = "../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod redis_server;
#[path = "../../tests/support/redis_server_client.rs"]
mod redis_server_client;
mod reference_figures;
#[allow(dead_code, reason = "the test names the series")]
mod series;

use evaluation::{Figures, Rule, evaluate, spikes_per_30d};
use long::{LongFigures, evaluate_long};
use quotabell::forecast::long::LongWindow;
use reference_figures::{LONG_REFERENCE, REFERENCE, SPIKES_PER_30D};

fn main() {
    if std::env::args().any(|argument| argument == "hourly") {
        return hourly::run();
    }
    println!(
        "{:<8} {:<15} {:>5}  Brier  precision  recall  2 h ahead  lead h  false in 30 days  time error h",
        "source", "rule", "cases"
    );
    for (source, reference) in &REFERENCE {
        let series = series::load(source);
        print(source, "the reference", Rule::Forecast, reference);
        for (rule, name) in
            [(Rule::Forecast, "forecast >= .9"), (Rule::Linear, "linear"), (Rule::Eighty, "alert at 80 %")]
        {
            let figures = evaluate(&series, rule);
            print(source, name, rule, &figures);
        }
    }
    println!("\n{:<8} {:<13} {:>5}  Brier  precision  recall  lead h", "source", "rule", "cases");
    for (window, source, reference) in LONG_REFERENCE {
        print_long(source, "the reference", &reference);
        let name = if window == LongWindow::Week { "week >= .94" } else { "month >= .9" };
        print_long(source, name, &evaluate_long(&series::load(source), window));
    }
    println!("\n{:<8} spikes in 30 days: the reference, ours", "source");
    for (source, reference) in SPIKES_PER_30D {
        println!("{source:<8} {reference:>32.3} {:>5.3}", spikes_per_30d(&series::load(source)));
    }
}

fn print_long(source: &str, name: &str, figures: &LongFigures) {
    let LongFigures { cases, brier, precision, recall, lead_h } = figures;
    println!("{source:<8} {name:<13} {cases:>5}  {brier:.3}  {precision:>9.3}  {recall:>6.3}  {lead_h:>6.1}");
}

fn print(source: &str, name: &str, rule: Rule, figures: &Figures) {
    let Figures { cases, brier, precision, recall, recall_2h, lead_h, false_per_30d, time_error_h } = figures;
    let forecast_only = |figure: &f64| if rule == Rule::Forecast { format!("{figure:.3}") } else { String::new() };
    let (brier, time_error) = (forecast_only(brier), forecast_only(time_error_h));
    print!("{source:<8} {name:<15} {cases:>5}  {brier:>5}  {precision:>9.3}  {recall:>6.3}  {recall_2h:>9.3}  ");
    println!("{lead_h:>6.2}  {false_per_30d:>16.2}  {time_error:>12}");
}
