use tokio::net::TcpListener;

#[global_allocator] // 1
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system(); // 2

#[tokio::main]
async fn main() {
    let _plimsoll = plimsoll::start(); // 3
    let app = axum::Router::new();
    let app = app.merge(plimsoll::http::router()); // 4
    let listener = TcpListener::bind("127.0.0.1:3000").await.unwrap();
    axum::serve(listener, app).await.unwrap();
}
