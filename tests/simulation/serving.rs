//! Accepts connections and answers their commands, for servers and Sentinels.

use std::rc::Rc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
    task::JoinSet,
};

use crate::{
    model::{Reply, Session},
    network::{Accepted, Cable},
};

/// Bytes that are read at once.
const PIECE: usize = 1 << 16;

/// What answers commands.
pub(crate) trait Service: 'static {
    /// Begins a connection.
    fn connect(&self) -> Session;

    /// Answers a command of a connection.
    async fn answer(&self, session: &mut Session, cable: &Cable, command: &[Vec<u8>]) -> Reply;
}

/// Accepts connections for as long as it is not dropped. They end with it.
pub(crate) async fn accept(
    service: Rc<impl Service>,
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
) {
    let mut sessions = JoinSet::new();
    while let Some(connection) = accepted.recv().await {
        sessions.spawn_local(serve(Rc::clone(&service), connection));
        while sessions.try_join_next().is_some() {}
    }
}

/// Answers the commands of one connection.
async fn serve(service: Rc<impl Service>, Accepted { mut stream, cable }: Accepted) {
    let mut session = service.connect();
    let mut piece = vec![0; PIECE];
    loop {
        let Ok(length @ 1..) = stream.read(&mut piece).await else { return };
        let Ok(commands) = session.feed(&piece[..length]) else { return };
        let mut replies = Vec::new();
        for command in commands {
            let reply = service.answer(&mut session, &cable, &command).await;
            replies.extend(session.encode(&reply));
        }
        cable.note_executed(length, replies.len());
        if stream.write_all(&replies).await.is_err() {
            return;
        }
    }
}
